# What the scripts of CI share; each sources it from the repository's root.

took=""

# The name of a step, then its command. told() prints how long each step took.
step() {
    local name=$1 start=$SECONDS
    shift
    "$@"
    took+=" $((SECONDS - start)) s $name,"
}

told() {
    echo "CI took$took $SECONDS s in all"
}

# Installs packages of Debian. CI is root.
packages() {
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" > /dev/null
}

# The extension and the tests have the same kernels, which a compiler cache compiles once. A host that keeps ~/.cache from
# run to run spares llama.cpp, too (tools/build_cache.py).
cache() {
    command -v ccache > /dev/null || packages ccache || echo "no ccache"
}
