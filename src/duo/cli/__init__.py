"""Arguments in, text out."""

from importlib import import_module

try:
    import_module("click.shell_completion")  # most of the time until main()
except KeyboardInterrupt:
    raise SystemExit(130) from None
