// Runs code with AMX instructions on a processor that has none: each of them raises SIGILL, is decoded and done by
// tile_machine. So the bytes that the assembler made are tested: which registers, which addresses, which shapes.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <ucontext.h>

#include "cpu/tile_machine.h"

namespace {

class tile_trap {
  public:
    tile_trap() {
        struct sigaction a {};
        a.sa_sigaction = on_illegal;
        a.sa_flags     = SA_SIGINFO | SA_NODEFER;
        if (sigaction(SIGILL, &a, &before_) != 0) {
            throw std::runtime_error("sigaction");
        }
        n_done = 0;
    }
    ~tile_trap() { sigaction(SIGILL, &before_, nullptr); }
    tile_trap(const tile_trap &)             = delete;
    tile_trap & operator=(const tile_trap &) = delete;

    // Instructions that were emulated since.
    static int64_t count() { return n_done; }

  private:
    using tiles = duo::cpu::tile_machine;

    static void on_illegal(int, siginfo_t *, void * context) {
        greg_t *   r = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
        const auto n = run(reinterpret_cast<const uint8_t *>(r[REG_RIP]), r);
        if (n == 0) {
            std::abort(); // some other instruction: a fault as ever
        }
        r[REG_RIP] += n;
        ++n_done;
    }

    // In the order in which instructions number them.
    static int64_t value_of(const greg_t * r, int i) {
        static constexpr int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
        return r[places[i]];
    }

    // Three-byte VEX prefix, map 0F38, W0, 128 bits; then opcode, ModRM and what belongs to it. Length, or 0.
    static int run(const uint8_t * p, const greg_t * r) {
        if (p[0] != 0xc4 || (p[1] & 0x1f) != 2 || (p[2] & 0x84) != 0) {
            return 0;
        }
        const int prefix = p[2] & 3; // none, 66, F3, F2
        const int third  = ~(p[2] >> 3) & 15;
        const int mod    = p[4] >> 6;
        const int reg    = (p[4] >> 3) & 7;
        const int rm     = p[4] & 7;
        if (mod == 3) {
            if (p[3] == 0x49 && prefix == 3 && rm == 0) {
                tiles::zero(reg);
            } else if (p[3] == 0x5e && prefix == 3) {
                tiles::dot_codes(reg, rm, third);
            } else if (p[3] == 0x5c && prefix == 2) {
                tiles::dot_bf16(reg, rm, third);
            } else {
                return 0;
            }
            return 5;
        }
        const uint8_t * q      = p + 5;
        int64_t         stride = 0;
        int             base   = rm | ((~p[1] >> 2) & 8); // B
        const bool      sib    = rm == 4;
        if (sib) {
            const int index = ((*q >> 3) & 7) | ((~p[1] >> 3) & 8); // X
            stride          = index == 4 ? 0 : value_of(r, index) << (*q >> 6);
            base            = (*q & 7) | ((~p[1] >> 2) & 8);
            ++q;
        }
        if (mod == 0 && (base & 7) == 5) {
            return 0; // relative to the instruction: never used here
        }
        int64_t at = value_of(r, base);
        if (mod == 1) {
            at += int8_t(*q++);
        } else if (mod == 2) {
            int32_t d;
            std::memcpy(&d, q, 4);
            at += d;
            q += 4;
        }
        if (p[3] == 0x4b && sib && prefix == 3) {
            tiles::load(reg, reinterpret_cast<const void *>(at), stride);
        } else if (p[3] == 0x4b && sib && prefix == 2) {
            tiles::store(reg, reinterpret_cast<void *>(at), stride);
        } else if (p[3] == 0x49 && reg == 0 && prefix <= 1) {
            duo::cpu::tile_config c;
            if (prefix == 0) {
                std::memcpy(&c, reinterpret_cast<const void *>(at + stride), sizeof c);
                tiles::configure(c);
            } else {
                tiles::save(c);
                std::memcpy(reinterpret_cast<void *>(at + stride), &c, sizeof c);
            }
        } else {
            return 0;
        }
        return int(q - p);
    }

    static inline std::atomic<int64_t> n_done = 0; // of all threads
    struct sigaction                   before_;
};

} // namespace
