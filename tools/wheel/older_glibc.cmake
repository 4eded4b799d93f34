# Builds for the glibc in the folder DUO_SYSROOT (tools/make_wheel.py makes it), with this machine's GCC. GCC's libstdc++
# is newer than that glibc, so it is linked statically, with older_glibc.o.
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CXX_COMPILER g++)
set(CMAKE_SYSROOT $ENV{DUO_SYSROOT})
set(libraries ${CMAKE_SYSROOT}/usr/lib/x86_64-linux-gnu) # GCC looks into this machine's first
# Without -fno-gnu-unique all copies of llama.cpp in a process would share the inline variables of one.
set(CMAKE_CXX_FLAGS_INIT "-fno-gnu-unique $ENV{DUO_WHEEL_FLAGS}")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-L${libraries} -static-libstdc++ -Wl,--exclude-libs,ALL \
    ${libraries}/older_glibc.o -lm -lpthread")
endforeach()
