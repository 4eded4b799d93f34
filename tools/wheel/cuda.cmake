# The target ggml-cuda as a wheel has it.

# The host's side is compiled as all other code is (older_glibc.cmake), and linked by the C++ compiler. CUDA's runtime is
# linked statically; cuBLAS is that of the package nvidia-cublas in the same site-packages.
target_compile_options(ggml-cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=--sysroot=${CMAKE_SYSROOT},-fno-gnu-unique>)
get_target_property(libraries ggml-cuda LINK_LIBRARIES)
list(TRANSFORM libraries REPLACE "^CUDA::cudart$" "CUDA::cudart_static")
set_target_properties(ggml-cuda PROPERTIES LINK_LIBRARIES "${libraries}" LINKER_LANGUAGE CXX
                                           INSTALL_RPATH "$ORIGIN;$ORIGIN/../../../nvidia/cu13/lib")

# ggml gives a GPU of compute capability 8.9 or later more tokens of a mixture at once than code for an older one allows, so
# it would refuse to start. The code of other files differs only where ggml asks which code there is.
set(folder ${DUO_LLAMA_SOURCE}/ggml/src/ggml-cuda)
set_source_files_properties(${folder}/mmvq.cu TARGET_DIRECTORY ggml-cuda
                            PROPERTIES COMPILE_OPTIONS --generate-code=arch=compute_89,code=compute_89)
file(GLOB_RECURSE files ${folder}/*.cu ${folder}/*.cuh)
foreach(file ${files})
  file(STRINGS ${file} differs REGEX "__CUDA_ARCH__.*ADA_LOVELACE")
  if(differs AND NOT file STREQUAL "${folder}/mmvq.cu")
    message(FATAL_ERROR "${file} differs for compute capability 8.9: compile it as mmvq.cu")
  endif()
endforeach()
