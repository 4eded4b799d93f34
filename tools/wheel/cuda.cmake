# The target ggml-cuda as a wheel has it.

# The host's side is compiled as all other code is (older_glibc.cmake), and linked by the C++ compiler. CUDA's runtime is
# linked statically; cuBLAS is that of the package nvidia-cublas in the same site-packages.
target_compile_options(ggml-cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=--sysroot=${CMAKE_SYSROOT},-fno-gnu-unique>)
get_target_property(libraries ggml-cuda LINK_LIBRARIES)
list(TRANSFORM libraries REPLACE "^CUDA::cudart$" "CUDA::cudart_static")
set_target_properties(ggml-cuda PROPERTIES LINK_LIBRARIES "${libraries}" LINKER_LANGUAGE CXX
                                           INSTALL_RPATH "$ORIGIN;$ORIGIN/../../../nvidia/cu13/lib")

# A GPU of compute capability 8.9 or later is given up to 8 tokens of a mixture's product at once, and code for an older
# one takes fewer, so it would refuse to start. Nothing else differs between 8.0 and 8.9.
set_source_files_properties(${DUO_LLAMA_SOURCE}/ggml/src/ggml-cuda/mmvq.cu TARGET_DIRECTORY ggml-cuda
                            PROPERTIES COMPILE_OPTIONS --generate-code=arch=compute_89,code=compute_89)
