"""Options of llama.cpp's programs at the pinned commit that end with an error: another command or program has them."""

# Options that llama.cpp has for a run and duo has only in `duo chat`.
IN_CHAT = frozenset(
    ("-sys", "-sysf", "--system-prompt", "--system-prompt-file", "--chat-template", "--chat-template-file",
     "--chat-template-kwargs", "--reasoning-format", "-rea", "--reasoning", "--reasoning-budget", "-cnv",
     "--conversation", "-st", "--single-turn", "-i", "--interactive")
)  # fmt: skip

# And those of llama-server that `duo serve` has.
IN_SERVE = frozenset(
    ("--host", "--port", "--api-prefix", "-a", "--alias", "-to", "--timeout", "--sse-ping-interval", "--api-key",
     "--api-key-file", "--cors-origins", "--ssl-key-file", "--ssl-cert-file", "--slots", "--no-slots", "--metrics",
     "--ui", "--no-ui", "--webui", "--no-webui")
)  # fmt: skip

# Those of programs for other purposes.
_ELSEWHERE = {
    "llama download": """
        --dflash --eagle3 --mtp
    """,
    "llama-batched-bench": """
        --output-format -npl -npp -ntg -pps -tgs
    """,
    "llama-cvector-generator": """
        --method --negative-file --pca-batch --pca-iter --positive-file
    """,
    "llama-debug": """
        --logits-output-dir --save-logits --tensor-filter
    """,
    "llama-diffusion-cli": """
        --diffusion-add-gumbel-noise --diffusion-alg-temp --diffusion-algorithm
        --diffusion-block-length --diffusion-cfg-scale --diffusion-eps --diffusion-steps
        --diffusion-visual
    """,
    "llama-embedding": """
        --attention --cls-separator --embd-output-format --embd-separator
    """,
    "llama-finetune": """
        --epochs --learning-rate --learning-rate-decay-epochs --learning-rate-min --optimizer
        --val-split --weight-decay -decay-epochs -epochs -lr -lr-min -opt -val-split -wd
    """,
    "llama-fit-params": """
        --fit-print -fitp
    """,
    "llama-imatrix": """
        --chunk --chunks --from-chunk --in-file --no-ppl --output-format --output-frequency
        --parse-special --ppl --process-output --save-frequency --show-statistics -ofreq
    """,
    "llama-parallel": """
        --sequences -ns
    """,
    "llama-passkey": """
        --junk --pos
    """,
    "llama-perplexity": """
        --hellaswag --hellaswag-tasks --kl-divergence --kl-divergence-base --multiple-choice
        --multiple-choice-tasks --ppl-output-type --ppl-stride --save-all-logits --winogrande
        --winogrande-tasks
    """,
    "llama-results": """
        --check
    """,
    "llama-retrieval": """
        --chunk-separator --chunk-size --context-file
    """,
    "llama-tokenize": """
        --ids --no-bos --no-parse-special --show-count --stdin
    """,
    "llama-tts": """
        --tts-lang --tts-speaker-file
    """,
}
PROGRAM = {name: program for program, names in _ELSEWHERE.items() for name in names.split()}

# Those of llama-server, llama-cli and llama-completion that duo does not have.
NOT_IN_DUO = frozenset(
    """
    --agent --audio --binary-file --cache-list --check-tensors --context-shift --cors-credentials --cors-headers
    --cors-methods --cpu-mask-batch --cpu-mask-batch-draft --cpu-range-batch --cpu-range-batch-draft
    --docker-repo --embd-gemma-default --embd-normalize --embedding --embeddings --fim-qwen-1.5b-default
    --fim-qwen-14b-spec --fim-qwen-30b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec
    --fit-ctx --fit-target --gpt-oss-120b-default --gpt-oss-20b-default --image --image-max-tokens
    --image-min-tokens --in-prefix --in-prefix-bos --in-suffix --interactive-first --kv-unified-per-slot
    --log-jsonl --log-prefix --log-prompts-dir --log-timestamps --lookup-cache-dynamic --lookup-cache-static
    --lora-init-without-apply --mcp-servers-config --mcp-servers-json --media-path --mmproj --mmproj-auto
    --mmproj-device --mmproj-url --model-url --models-autoload --models-dir --models-max --models-preset
    --mtmd-batch-max-tokens --multiline-input --no-cache-idle-slots --no-cont-batching --no-cors-credentials
    --no-host --no-jinja --no-kv-unified --no-models-autoload --no-prefill-assistant --no-reasoning-preserve
    --no-repack --no-show-timings --output --output-file --path --pooling --prefill-assistant
    --print-token-count --props --reasoning-budget-message --reasoning-effort --reasoning-preserve --rerank
    --reranking --reuse-port --server-base --skip-chat-parsing --sleep-idle-seconds --slot-save-path
    --spec-default --spec-draft-cpu-mask-batch --spec-draft-cpu-range-batch --spec-ngram-min-hits
    --spec-ngram-mod-n-match --spec-ngram-mod-n-max --spec-ngram-mod-n-min --spec-ngram-size-m
    --spec-ngram-size-n --spec-synth-len --spec-synth-rates --special --spm-infill --tags --tools
    --tools-runtime --ui-config --ui-config-file --ui-mcp-proxy --video --video-ffmpeg-dir
    --video-fps --video-timestamp-interval --vision-gemma-12b-default --vision-gemma-4b-default --webui-config
    --webui-config-file --webui-mcp-proxy -Cb -Cbd -Crb -Crbd -ag -bf -cl -dr -fitc -fitt -if -lcd -lcs -mli -mm
    -mmdev -mmu -mu -no-kvu -nocb -nr -o -ptc -sp
    """.split()  # noqa: SIM905 (a line for each otherwise)
)
