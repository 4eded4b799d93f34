# The kernels of csrc/cpu: one file per instruction set, each with its own flags, all in one library; which one runs is
# decided at run time. They know neither ggml nor duo.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)

set(cpu_kernels csrc/cpu/amx.cpp csrc/cpu/attention.cpp csrc/cpu/file_block.cpp csrc/cpu/isa.cpp
                csrc/cpu/kernel_portable.cpp csrc/cpu/product.cpp csrc/cpu/repack.cpp csrc/cpu/team.cpp)
add_library(duo_cpu STATIC ${cpu_kernels})
target_include_directories(duo_cpu PUBLIC csrc)
# Optimised whatever the build type, and without the rules that keep loops from vectors; with sanitizers -O3 takes minutes
# to compile.
if(MSVC)
  set(duo_cpu_flags /O2)
else()
  set(duo_cpu_flags $<IF:$<BOOL:${DUO_SANITIZE}>,-O1,-O3> -fno-math-errno -fno-trapping-math)
endif()
set_source_files_properties(${cpu_kernels} PROPERTIES COMPILE_OPTIONS "${duo_cpu_flags}")

# GCC takes arrays of vectors that are filled one by one for uninitialised ones.
set(duo_kernel_warnings "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-ignored-attributes>")

function(duo_kernels name source)
  add_library(duo_${name} OBJECT ${source})
  target_include_directories(duo_${name} PRIVATE csrc)
  target_compile_options(duo_${name} PRIVATE ${duo_cpu_flags} ${duo_kernel_warnings} ${ARGN})
  target_compile_definitions(duo_${name} PRIVATE $<TARGET_PROPERTY:duo_cpu,COMPILE_DEFINITIONS>)
  target_sources(duo_cpu PRIVATE $<TARGET_OBJECTS:duo_${name}>)
endfunction()

# macOS compiles for several at once: then the kernels of both are left out.
set(cpu_architecture ${CMAKE_SYSTEM_PROCESSOR})
if(CMAKE_OSX_ARCHITECTURES)
  set(cpu_architecture "${CMAKE_OSX_ARCHITECTURES}")
endif()

if(cpu_architecture MATCHES "^(x86_64|AMD64|amd64)$")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "MSVC")
    set(avx2 /arch:AVX2)
    set(avx512 /arch:AVX512)
  else()
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprefer-vector-width=512)
  endif()
  target_compile_definitions(duo_cpu PUBLIC DUO_X86)
  duo_kernels(avx2 csrc/cpu/kernel_avx2.cpp ${avx2})
  duo_kernels(avx512 csrc/cpu/kernel_avx512.cpp ${avx512})
  check_cxx_compiler_flag(-mavxvnni DUO_HAS_AVX_VNNI)
  if(DUO_HAS_AVX_VNNI)
    target_compile_definitions(duo_cpu PUBLIC DUO_AVX_VNNI)
    duo_kernels(avx_vnni csrc/cpu/kernel_avx2.cpp ${avx2} -mavxvnni -DDUO_KERNEL_AVX_VNNI)
  endif()
  check_cxx_compiler_flag(-mavx512bf16 DUO_HAS_AVX512_BF16)
  if(DUO_HAS_AVX512_BF16)
    target_compile_definitions(duo_cpu PUBLIC DUO_AVX512_BF16)
    duo_kernels(avx512_bf16 csrc/cpu/kernel_avx512.cpp ${avx512} -mavx512bf16 -DDUO_KERNEL_AVX512_BF16)
  endif()
  duo_kernels(amx_emulated csrc/cpu/kernel_amx.cpp ${avx512})
  set(amx -mamx-tile -mamx-int8 -mamx-bf16)
  list(JOIN amx " " CMAKE_REQUIRED_FLAGS) # the assembler must know them too
  check_cxx_source_compiles("int main() { asm volatile(\"tdpbf16ps %tmm2, %tmm1, %tmm0\"); }" DUO_HAS_AMX)
  unset(CMAKE_REQUIRED_FLAGS)
  if(DUO_HAS_AMX)
    target_compile_definitions(duo_cpu PUBLIC DUO_AMX)
    duo_kernels(amx csrc/cpu/kernel_amx.cpp ${avx512} ${amx} -DDUO_KERNEL_AMX)
  endif()
elseif(cpu_architecture MATCHES "^(aarch64|arm64)$")
  # No more than the extension: what else a later Armv8 has is not asked for at run time. GCC orders these kernels for
  # their arithmetic before it deals out registers, and then has too few.
  set(neon -march=armv8.2-a+dotprod "$<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>")
  target_compile_definitions(duo_cpu PUBLIC DUO_ARM)
  duo_kernels(neon_dot csrc/cpu/kernel_neon.cpp ${neon})
  check_cxx_compiler_flag(-march=armv8.2-a+dotprod+i8mm+bf16 DUO_HAS_I8MM)
  if(DUO_HAS_I8MM)
    target_compile_definitions(duo_cpu PUBLIC DUO_I8MM)
    duo_kernels(neon_i8mm csrc/cpu/kernel_neon.cpp ${neon} -march=armv8.2-a+dotprod+i8mm+bf16 -DDUO_KERNEL_I8MM)
  endif()
endif()

# The same OpenMP team as ggml-cpu's: two teams of one thread would fight for its cores.
# ThreadSanitizer does not know libgomp's barriers and would report races that are none.
find_package(OpenMP COMPONENTS CXX)
if(OpenMP_CXX_FOUND AND NOT DUO_SANITIZE STREQUAL "thread")
  target_link_libraries(duo_cpu PRIVATE OpenMP::OpenMP_CXX)
endif()
