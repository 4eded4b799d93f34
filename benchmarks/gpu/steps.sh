#!/usr/bin/env bash
# All that benchmarks/gpu measures, in the order of its worth, for a machine that is at hand for half an hour.
#
#   benchmarks/gpu/steps.sh OUT [MODELS]     OUT: folder for the results; MODELS: for the made models (default: models)
#
# It needs an environment whose llama-cpp-python has the GPU's backend, as `make test-gpu` makes it:
#   CMAKE_ARGS="-DGGML_CUDA=on -DGGML_RPC=on" make VENV=.venv-cuda test-gpu
# PYTHON names its interpreter (default: .venv-cuda/bin/python). Each step has a time limit and is skipped if it fails.
# TIMES=3 gives a slow device three times as long.
set -u
out=$(realpath -m "$1")
models=$(realpath -m "${2:-models}")
python=$(realpath -s "${PYTHON:-.venv-cuda/bin/python}")
shapes=${SHAPES:-"70b 8b 13b 1b"} # the headline's target and draft, then the smaller pair
read -r target draft target2 draft2 <<< "$shapes"
cd "$(dirname "$0")/../.."
mkdir -p "$out"

step() { # minutes, name, command...
    local minutes=$1 name=$2
    shift 2
    echo "== $name"
    timeout $((minutes * 60 * ${TIMES:-1})) "$@" > "$out/$name.txt" 2>&1
    local code=$?
    tail -n 25 "$out/$name.txt"
    echo "$name: exit code $code, $SECONDS s so far" | tee -a "$out/steps.txt"
}

step 1 devices "$python" -m duo devices
step 6 tests "$python" -m pytest -q -m gpu tests
step 4 models "$python" -m benchmarks.gpu.shapes "$models" $shapes
step 2 doctor-draft "$python" -m duo doctor -m "$models/$draft.gguf" -ngl all
step 2 doctor-part "$python" -m duo doctor -m "$models/$target2.gguf" -ngl 11
step 2 copies "$python" -m benchmarks.gpu.copies --model "$models/$draft.gguf" --out "$out/copies.json"
PYTHON=$python step 2 loops benchmarks/llama_cpp/build.sh
step 10 headline "$python" -m benchmarks.gpu.headline --target "$models/$target.gguf" --draft "$models/$draft.gguf" \
    --out "$out/headline.json"
step 5 headline-small "$python" -m benchmarks.gpu.headline --target "$models/$target2.gguf" \
    --draft "$models/$draft2.gguf" --out "$out/headline-small.json"
step 5 placements "$python" -m duo bench -m "$models/$target2.gguf" -md "$models/$draft2.gguf" --placements auto \
    --questions 3 --repetitions 1 -n 96 --json-file "$out/placements.json"
step 3 several "$python" -m duo bench -m "$models/$target2.gguf" -md "$models/$draft2.gguf" --slots 1,2,4 -ngl all \
    -ngld all --questions 4 -n 96
