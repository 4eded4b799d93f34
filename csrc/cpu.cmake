# The kernels of csrc/cpu: one file per instruction set, each with its own flags, all in one library. The set is chosen
# at run time. The kernels depend neither on ggml nor on duo.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)

set(cpu_kernels csrc/cpu/amx.cpp csrc/cpu/attention.cpp csrc/cpu/codebook.cpp csrc/cpu/evict.cpp csrc/cpu/file_block.cpp csrc/cpu/file_block_k.cpp csrc/cpu/file_block_iq.cpp
                csrc/cpu/isa.cpp csrc/cpu/kernel_portable.cpp csrc/cpu/product.cpp csrc/cpu/quantise.cpp csrc/cpu/repack.cpp csrc/cpu/team.cpp csrc/cpu/team_place.cpp
                csrc/cpu/unit_layout.cpp csrc/cpu/unit_layout_iq.cpp)
# No test needs them with ThreadSanitizer (below).
add_library(duo_cpu STATIC EXCLUDE_FROM_ALL ${cpu_kernels})
target_include_directories(duo_cpu PUBLIC csrc)
# Optimised whatever the build type, and without the rules that keep loops from vectors; with sanitizers -O3 takes minutes
# to compile.
if(MSVC)
  set(duo_cpu_flags /O2)
else()
  set(duo_cpu_flags $<IF:$<BOOL:${DUO_SANITIZE}>,-O1,-O3> -fno-math-errno -fno-trapping-math)
endif()
set_source_files_properties(${cpu_kernels} PROPERTIES COMPILE_OPTIONS "${duo_cpu_flags}")
# Nobody waits for the portable kernels, which are a reference; -O3 takes ten times as long to compile them.
if(NOT MSVC)
  set_source_files_properties(csrc/cpu/kernel_portable.cpp PROPERTIES COMPILE_OPTIONS "-O1;-fno-math-errno;-fno-trapping-math")
endif()

# GCC wrongly warns that arrays of vectors are uninitialised if they are filled one by one.
set(duo_kernel_warnings "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-ignored-attributes>")

function(duo_kernels name source)
  add_library(duo_${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_include_directories(duo_${name} PRIVATE csrc)
  target_compile_options(duo_${name} PRIVATE ${duo_cpu_flags} ${duo_kernel_warnings} ${ARGN})
  target_compile_definitions(duo_${name} PRIVATE $<TARGET_PROPERTY:duo_cpu,COMPILE_DEFINITIONS>)
  target_sources(duo_cpu PRIVATE $<TARGET_OBJECTS:duo_${name}>)
endfunction()

# macOS can compile for several architectures at once; then all these kernels are left out.
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
  list(JOIN amx " " CMAKE_REQUIRED_FLAGS) # the assembler must support them too
  check_cxx_source_compiles("int main() { asm volatile(\"tdpbf16ps %tmm2, %tmm1, %tmm0\"); }" DUO_HAS_AMX)
  unset(CMAKE_REQUIRED_FLAGS)
  if(DUO_HAS_AMX)
    target_compile_definitions(duo_cpu PUBLIC DUO_AMX)
    duo_kernels(amx csrc/cpu/kernel_amx.cpp ${avx512} ${amx} -DDUO_KERNEL_AMX)
  endif()
elseif(cpu_architecture MATCHES "^(aarch64|arm64)$")
  # Only this extension: the run-time check does not test for other features of later Armv8 versions. GCC schedules
  # these kernels before register allocation and then runs out of registers. Unless types may alias, GCC 12 also makes
  # code that loses sums of Q4_1 and Q5_1. Clang does not, and nothing in the source explains it.
  set(neon -march=armv8.2-a+dotprod "$<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns;-fno-strict-aliasing>")
  target_compile_definitions(duo_cpu PUBLIC DUO_ARM)
  duo_kernels(neon_dot csrc/cpu/kernel_neon.cpp ${neon})
  check_cxx_compiler_flag(-march=armv8.2-a+dotprod+i8mm+bf16 DUO_HAS_I8MM)
  if(DUO_HAS_I8MM)
    target_compile_definitions(duo_cpu PUBLIC DUO_I8MM)
    duo_kernels(neon_i8mm csrc/cpu/kernel_neon.cpp ${neon} -march=armv8.2-a+dotprod+i8mm+bf16 -DDUO_KERNEL_I8MM)
  endif()
endif()

# Uses the same OpenMP team as ggml-cpu: two teams of one thread would compete for its cores. ThreadSanitizer does not
# understand libgomp's barriers and would report false races.
find_package(OpenMP COMPONENTS CXX)
if(OpenMP_CXX_FOUND AND NOT DUO_SANITIZE STREQUAL "thread")
  target_link_libraries(duo_cpu PRIVATE OpenMP::OpenMP_CXX)
endif()
