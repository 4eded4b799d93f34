// What compiler.h says in the words of other compilers.
#include <string_view>

#include "base/compiler.h"
#include "check.h"

#if defined(DUO_IS_X86_64) && defined(__GNUC__)

#define SAME(name) CHECK_EQ(duo::cpu_supports_by_cpuid(name), (__builtin_cpu_supports(name) != 0))

// What MSVC's builds would go by.
TEST(processor_features_by_cpuid_are_the_compilers) {
    SAME("avx2");
    SAME("fma");
    SAME("avx512f");
    SAME("avx512dq");
    SAME("avx512bw");
    SAME("avx512vl");
    SAME("avx512vnni");
#if !defined(__clang__) // which knows fewer names
    SAME("f16c");
    SAME("avx512bf16");
    SAME("avxvnni");
#endif
    CHECK(!duo::cpu_supports_by_cpuid("avx9"));
}

TEST(unknown_cpuid_leaves_are_empty) {
    const duo::cpuid_registers r = duo::cpuid(0x0fffffff, 0);
    CHECK_EQ(r.a | r.b | r.c | r.d, 0u);
}

#endif
