// The common part of both programs: the command line, prompts by file name on stdin, one line of JSON per prompt on
// stdout.
#pragma once

#include "ggml-backend.h"
#include "llama.h"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace loop {

constexpr int n_predict_warmup = 16; // tokens generated and discarded before the first prompt

// llama.cpp's default filters, which duo has, too; for texts at a temperature.
constexpr int32_t default_top_k = 40;
constexpr float   default_top_p = 0.95f;
constexpr float   default_min_p = 0.05f;

// One model of the pair, its placement and its threads.
struct placement {
    std::string                     path;
    int32_t                         n_threads    = 1;
    int32_t                         n_gpu_layers = 0;
    std::vector<ggml_backend_dev_t> devices; // null-terminated; empty = llama.cpp chooses
    std::vector<int>                cores;   // empty = wherever the process may run
};

struct options {
    placement target;
    placement draft;
    int32_t   n_ctx      = 0; // 0 = the model's training context
    int32_t   n_predict  = 128;
    int32_t   n_draft    = 3;    // longest draft, llama.cpp's default
    float     p_min      = 0.0f; // stop drafting below this probability, llama.cpp's default
    float     temp       = 0.0f; // 0 = greedy; else the filters above, then this temperature
    uint32_t  seed       = 1;
    bool      ignore_eos = false;
    bool      mtp        = false; // the target's MTP layers draft
    int32_t   n_slots    = 1;     // texts at once (slots_loop)
};

// Times are in microseconds from the start of the prompt.
struct result {
    std::vector<llama_token> tokens; // without an end-of-generation token

    int32_t n_prompt   = 0;
    int32_t n_first    = 0; // tokens from the first pass after the prompt
    int32_t n_passes   = 0; // passes of the target after the prompt
    int32_t n_drafted  = 0;
    int32_t n_accepted = 0;
    int64_t prompt_us  = 0; // the prompt is evaluated
    int64_t first_us   = 0; // the first token is known
    int64_t total_us   = 0; // the last token is known
};

inline std::vector<std::string> split(const std::string & text, char by = ',') {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == by) {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

template <typename number> number parse_number(std::string_view name, const std::string & text) {
    number     value = 0;
    const auto end   = text.data() + text.size();
    if (const auto [p, error] = std::from_chars(text.data(), end, value); error != std::errc() || p != end) {
        throw std::runtime_error(std::string(name) + " needs a number, not '" + text + "'");
    }
    return value;
}

// "none" = the CPU alone; llama.cpp would otherwise send large batches to a GPU even with no layer on it
inline std::vector<ggml_backend_dev_t> parse_devices(const std::string & text) {
    std::vector<ggml_backend_dev_t> devices;
    if (text != "none") {
        for (const auto & name : split(text)) {
            devices.push_back(ggml_backend_dev_by_name(name.c_str()));
            if (!devices.back()) {
                throw std::runtime_error("there is no device '" + name + "'");
            }
        }
    }
    devices.push_back(nullptr);
    return devices;
}

inline options parse_options(int argc, char ** argv) {
    options opts;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--ignore-eos") {
            opts.ignore_eos = true;
            continue;
        }
        if (name == "--mtp") {
            opts.mtp = true;
            continue;
        }
        if (i + 1 == argc) {
            throw std::runtime_error("unknown option, or no value for it: " + std::string(name));
        }
        const std::string value = argv[++i];
        const bool        draft = name.ends_with('d') && name != "--seed"; // -md -td -ngld -devd -coresd
        placement &       where = draft ? opts.draft : opts.target;
        const auto        base  = draft ? name.substr(0, name.size() - 1) : name;
        if (base == "-m") {
            where.path = value;
        } else if (base == "-t") {
            where.n_threads = parse_number<int32_t>(name, value);
        } else if (base == "-ngl") {
            where.n_gpu_layers = parse_number<int32_t>(name, value);
        } else if (base == "-dev") {
            where.devices = parse_devices(value);
        } else if (base == "-cores") {
            where.cores.clear();
            for (const auto & core : split(value)) {
                where.cores.push_back(parse_number<int>(name, core));
            }
        } else if (name == "-c") {
            opts.n_ctx = parse_number<int32_t>(name, value);
        } else if (name == "-n") {
            opts.n_predict = parse_number<int32_t>(name, value);
        } else if (name == "--slots") {
            opts.n_slots = parse_number<int32_t>(name, value);
        } else if (name == "--temp") {
            opts.temp = parse_number<float>(name, value);
        } else if (name == "--seed") {
            opts.seed = parse_number<uint32_t>(name, value);
        } else if (name == "--draft-max") {
            opts.n_draft = parse_number<int32_t>(name, value);
        } else if (name == "--draft-p-min") {
            opts.p_min = parse_number<float>(name, value);
        } else {
            throw std::runtime_error("unknown option: " + std::string(name));
        }
    }
    if (opts.target.path.empty()) {
        throw std::runtime_error("-m MODEL.gguf is missing");
    }
    if (opts.mtp) {
        opts.draft = {.n_threads = opts.target.n_threads, .cores = opts.target.cores};
    }
    if (opts.n_predict < 1 || opts.target.n_threads < 1 || opts.draft.n_threads < 1 || opts.n_draft < 1 ||
        opts.n_slots < 1) {
        throw std::runtime_error("-n, -t, -td, --draft-max and --slots must be at least 1");
    }
    return opts;
}

inline std::vector<llama_token> tokenize(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> tokens(text.size() + 8);
    const int32_t n = llama_tokenize(vocab, text.data(), (int32_t)text.size(), tokens.data(), (int32_t)tokens.size(),
                                     /* add_special */ true, /* parse_special */ true);
    if (n < 1) {
        throw std::runtime_error("the prompt could not be split into tokens, or is empty");
    }
    tokens.resize(n);
    return tokens;
}

inline void print_json(const result & r) {
    std::printf("{\"n_prompt\": %d, \"prompt_ms\": %.3f, \"first_ms\": %.3f, \"generation_ms\": %.3f, ", r.n_prompt,
                r.prompt_us / 1e3, r.first_us / 1e3, (r.total_us - r.prompt_us) / 1e3);
    std::printf("\"n_first\": %d, \"n_passes\": %d, \"n_drafted\": %d, \"n_accepted\": %d, \"tokens\": [", r.n_first,
                r.n_passes, r.n_drafted, r.n_accepted);
    for (size_t i = 0; i < r.tokens.size(); ++i) {
        std::printf(i ? ", %d" : "%d", r.tokens[i]);
    }
    std::printf("]}");
}

// llama.cpp's own messages: errors only, so that printing takes no time
inline void log_errors(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

inline std::string read_file(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error("cannot read the prompt " + path);
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

// Warms up, then runs generate(tokens, n_predict) -> result for each prompt file named on stdin.
template <typename function>
void run_prompts(const llama_context * ctx, const options & opts, int32_t n_extra, function && generate) {
    const llama_vocab * vocab  = llama_model_get_vocab(llama_get_model(ctx));
    const auto          warmup = tokenize(vocab, "The quick brown fox jumps over the lazy dog.");
    generate(warmup, n_predict_warmup);

    for (std::string path; std::getline(std::cin, path);) {
        const auto   tokens = tokenize(vocab, read_file(path));
        const size_t needed = tokens.size() + opts.n_predict + n_extra;
        if (needed > llama_n_ctx(ctx) || tokens.size() > llama_n_batch(ctx)) {
            throw std::runtime_error(path + ": " + std::to_string(tokens.size()) + " tokens and what follows need -c " +
                                     std::to_string(needed));
        }
        const auto result = generate(tokens, opts.n_predict);

        // OpenMP threads spin for some milliseconds after their last work: let them, before somebody else is measured
        if (opts.target.n_threads > 1 || opts.draft.n_threads > 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        print_json(result);
        std::printf("\n");
        std::fflush(stdout);
    }
}

} // namespace loop
