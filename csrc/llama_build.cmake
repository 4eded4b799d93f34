# Which build of llama.cpp duo is made for: csrc/cpu/ggml_build.h compares it with the one that is loaded.
# duo_llama_build(SITE): sets DUO_LLAMA_RELEASE, the release of the llama-cpp-python in the folder SITE, beside
# GGML_BUILD_COMMIT and GGML_VERSION, which ggml's configuration has set.
# duo_llama_package: the llama-cpp-python that pyproject.toml names, as pip takes it.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../pyproject.toml" duo_llama_package REGEX "^ +\"llama-cpp-python==")
string(REGEX REPLACE "^ +\"([^\"]*)\".*" "\\1" duo_llama_package "${duo_llama_package}")

macro(duo_llama_build site)
  set(DUO_LLAMA_RELEASE "")
  if(EXISTS "${site}/llama_cpp/__init__.py")
    file(STRINGS "${site}/llama_cpp/__init__.py" DUO_LLAMA_RELEASE REGEX "^__version__ = ")
    string(REGEX REPLACE "^__version__ = [\"']([^\"']*)[\"'].*" "\\1" DUO_LLAMA_RELEASE "${DUO_LLAMA_RELEASE}")
  endif()
  if(NOT DUO_LLAMA_RELEASE AND NOT GGML_BUILD_COMMIT MATCHES "^[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]")
    message(FATAL_ERROR "The llama.cpp in ${site} says neither its commit (it was built without git) nor its "
      "llama-cpp-python's release, so duo could not know it again; run pip install ${duo_llama_package}")
  endif()
endmacro()
