# Where llama.cpp comes from: the headers and CMake configs that llama-cpp-python puts into site-packages, or the folder
# DUO_LLAMA_BUNDLE.
include(${CMAKE_CURRENT_LIST_DIR}/llama_build.cmake)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)

if(DUO_LLAMA_BUNDLE)
  include(${DUO_LLAMA_BUNDLE}/build.cmake) # sets GGML_BUILD_COMMIT and GGML_VERSION
  foreach(library ggml-base ggml llama)
    add_library(${library} SHARED IMPORTED)
    set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${DUO_LLAMA_BUNDLE}/llama_cpp/lib/libduo-${library}.so
                                                INTERFACE_INCLUDE_DIRECTORIES ${DUO_LLAMA_BUNDLE}/include)
  endforeach()
  target_link_libraries(llama INTERFACE ggml ggml-base)
  find_path(DUO_MTMD_INCLUDE mtmd-helper.h HINTS ${DUO_LLAMA_BUNDLE}/include NO_DEFAULT_PATH)
  find_library(DUO_MTMD_LIBRARY duo-mtmd HINTS ${DUO_LLAMA_BUNDLE}/llama_cpp/lib NO_DEFAULT_PATH)
  duo_llama_build("${DUO_LLAMA_BUNDLE}")
  return()
endif()

# The build environment comes first, then the environment of the interpreter that runs the build.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u, pathlib as p; s = u.find_spec('llama_cpp'); print(p.Path(s.origin).parents[1] if s else '')"
  OUTPUT_VARIABLE llama_site OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT llama_site)
  message(FATAL_ERROR "llama-cpp-python is not installed here: pip install ${duo_llama_package}")
endif()

# manylinux builds install into lib64, where Debian's CMake does not look by default.
set(llama_hints ${llama_site}/lib/cmake/llama ${llama_site}/lib64/cmake/llama)
set(ggml_hints ${llama_site}/lib/cmake/ggml ${llama_site}/lib64/cmake/ggml)
find_path(ggml_DIR ggml-config.cmake HINTS ${ggml_hints} NO_DEFAULT_PATH)
find_path(llama_DIR llama-config.cmake HINTS ${llama_hints} NO_DEFAULT_PATH)
find_package(ggml CONFIG REQUIRED)
find_package(llama CONFIG REQUIRED)
find_path(DUO_MTMD_INCLUDE mtmd-helper.h HINTS ${llama_site}/include NO_DEFAULT_PATH)
find_library(DUO_MTMD_LIBRARY mtmd HINTS ${llama_site}/lib ${llama_site}/lib64 NO_DEFAULT_PATH)
duo_llama_build("${llama_site}")
if(NOT "ggml-rpc" IN_LIST GGML_AVAILABLE_BACKENDS)
  execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/src/duo/build_advice.py
                  OUTPUT_VARIABLE llama_rebuild OUTPUT_STRIP_TRAILING_WHITESPACE)
  message(WARNING "llama-cpp-python was built without RPC; remote devices will be missing. To have them:\n  ${llama_rebuild}")
endif()
