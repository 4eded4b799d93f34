#!/usr/bin/env bash
# Builds llama.cpp's own loops into build/, against the llama-cpp-python that $PYTHON (default: python) imports.
#
#   ./build.sh                                         fetches that version's sdist with pip, for its headers
#   LLAMA_CPP_SOURCE=.../vendor/llama.cpp ./build.sh   takes a source tree that is already there
set -euo pipefail
python=${PYTHON:-python}
source=${LLAMA_CPP_SOURCE:+$(realpath "$LLAMA_CPP_SOURCE")}
cd "$(dirname "$0")"

# Without importing it: that would load the libraries.
read -r version packages < <("$python" - <<'END'
import importlib.metadata

package = importlib.metadata.distribution("llama-cpp-python")
print(package.version, package.locate_file("").resolve())
END
)

source=${source:-$PWD/build/llama_cpp_python-$version/vendor/llama.cpp}
if [ ! -d "$source/common" ] || [ ! -d "$source/vendor" ]; then
    echo "fetching the source of llama-cpp-python $version"
    mkdir -p build/sdist
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest build/sdist \
        "llama-cpp-python==$version"
    folder=llama_cpp_python-$version
    tar -xzf "build/sdist/$folder.tar.gz" -C build "$folder/llama_cpp/__init__.py" \
        "$folder/vendor/llama.cpp/"{common,vendor,src/llama-ext.h}
fi

cmake -S . -B build -DPYTHON_SITE_PACKAGES="$packages" -DLLAMA_CPP_SOURCE="$source"
cmake --build build --parallel 2
