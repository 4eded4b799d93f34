# For llama-cpp-python's build: only the libraries that its wheel is for. The code of llama.cpp's programs (their options,
# chat parsers, HTTP) is 40% of the compile time, and neither llama_cpp nor duo loads it. Included by CMAKE_ARGS
# (tools/cmake_args.py) after project(llama_cpp); a normal variable outlasts the cache entry that is set there (CMP0126).
set(LLAMA_BUILD_COMMON OFF)
