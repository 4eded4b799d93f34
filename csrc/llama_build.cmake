# Records the build of llama.cpp that duo is made for; csrc/cpu/ggml_build.h compares it with the loaded one.
# duo_llama_build(SITE) sets DUO_LLAMA_RELEASE, the release of the llama-cpp-python in the folder SITE. ggml's
# configuration sets GGML_BUILD_COMMIT and GGML_VERSION.
macro(duo_llama_build site)
  set(DUO_LLAMA_RELEASE "")
  if(EXISTS "${site}/llama_cpp/__init__.py")
    file(STRINGS "${site}/llama_cpp/__init__.py" DUO_LLAMA_RELEASE REGEX "^__version__ = ")
    string(REGEX REPLACE "^__version__ = [\"']([^\"']*)[\"'].*" "\\1" DUO_LLAMA_RELEASE "${DUO_LLAMA_RELEASE}")
  endif()
  if(NOT DUO_LLAMA_RELEASE AND NOT GGML_BUILD_COMMIT MATCHES "^[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]")
    message(FATAL_ERROR "The llama.cpp in ${site} says neither its commit (it was built without git) nor its "
      "llama-cpp-python's release, so duo could not identify it; run pip install llama-cpp-python==0.3.36")
  endif()
endmacro()
