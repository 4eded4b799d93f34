# Builds for the glibc in the folder DUO_SYSROOT (tools/wheel_target.py makes it and sets these variables), with this
# machine's GCC or a cross compiler. GCC's libstdc++ is newer than that glibc, so it is linked statically, with
# older_glibc.o.
set(machine $ENV{DUO_WHEEL_MACHINE})
if(NOT machine STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${machine})
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
endif()
set(CMAKE_C_COMPILER $ENV{DUO_WHEEL_COMPILERS}gcc)
set(CMAKE_CXX_COMPILER $ENV{DUO_WHEEL_COMPILERS}g++)
set(CMAKE_SYSROOT $ENV{DUO_SYSROOT})
set(libraries ${CMAKE_SYSROOT}/usr/lib/${machine}-linux-gnu) # GCC looks into this machine's first
set(CMAKE_C_FLAGS_INIT "$ENV{DUO_WHEEL_C_FLAGS}")
# Without -fno-gnu-unique all copies of llama.cpp in a process would share the inline variables of one.
set(CMAKE_CXX_FLAGS_INIT "-fno-gnu-unique $ENV{DUO_WHEEL_FLAGS}")
foreach(kind EXE SHARED MODULE) # for CUDA, CMake itself names no sysroot
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "--sysroot=${CMAKE_SYSROOT} -L${libraries} -static-libstdc++ -Wl,--exclude-libs,ALL \
    ${libraries}/older_glibc.o -lm -lpthread")
endforeach()
