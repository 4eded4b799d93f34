#include "ngram_counts.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file_map.h"

namespace duo {

namespace {

constexpr int32_t n_count_most = 1 << 24; // products of two counts are far below 64 bits
constexpr size_t  n_text_most  = 8192;    // tokens of a text that are counted: the texts of others wait meanwhile

// Reads numbers of 32 bits from a file.
class numbers {
  public:
    explicit numbers(const file_map & file) : file_(file) {}

    [[nodiscard]] bool   at_end() const { return at_ == file_.size(); }
    [[nodiscard]] size_t n_left() const { return (file_.size() - at_) / sizeof(int32_t); }
    [[nodiscard]] bool   take(std::span<int32_t> out) {
        if (out.size_bytes() > file_.size() - at_) {
            return false;
        }
        std::memcpy(out.data(), file_.data() + at_, out.size_bytes());
        at_ += out.size_bytes();
        return true;
    }

  private:
    const file_map & file_;
    size_t           at_ = 0;
};

bool can_be_written(token_id t) {
    return t >= 0 && !is_picture(t);
}

} // namespace

size_t ngram_counts::hash::operator()(const ngram & x) const {
    uint64_t h = 0;
    for (const token_id t : x) {
        h = (h + uint32_t(t) + 1) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    return size_t(h);
}

ngram_counts::ngram ngram_counts::key_of(std::span<const token_id> tokens) {
    ngram key;
    key.fill(-1);
    std::ranges::copy(tokens, key.begin());
    return key;
}

void ngram_counts::count(const ngram & key, token_id token, int32_t n) {
    auto & seen = all_[key];
    auto   here = std::ranges::find(seen, token, &next::token);
    if (here == seen.end()) {
        seen.push_back({token, n});
    } else {
        here->count = std::min(n_count_most, here->count + n);
    }
}

void ngram_counts::add(std::span<const token_id> text, size_t n_known) {
    n_known = std::max(n_known, text.size() - std::min(text.size(), n_text_most));
    for (size_t i = std::max(n_known, size_t(1)); i < text.size(); ++i) {
        for (size_t n = 1; can_be_written(text[i]) && n <= std::min(i, n_longest) && can_be_written(text[i - n]); ++n) {
            count(key_of(text.subspan(i - n, n)), text[i], 1);
        }
    }
    if (all_.size() > n_grams_most) {
        forget_rare();
    }
}

// What is left may be more than half of the most: then the others go that come first.
void ngram_counts::forget_rare() {
    std::erase_if(all_, [](const auto & x) { return x.second.size() == 1 && x.second.front().count == 1; });
    while (all_.size() > n_grams_most / 2) {
        all_.erase(all_.begin());
    }
}

const std::vector<ngram_counts::next> * ngram_counts::find(std::span<const token_id> tokens) const {
    const auto found = all_.find(key_of(tokens));
    return found == all_.end() ? nullptr : &found->second;
}

void ngram_counts::load(const std::string & path, int32_t n_vocab) {
    if (std::error_code unknown; std::filesystem::file_size(path, unknown) == 0) {
        return; // nothing was counted yet
    }
    const file_map file(path, true);
    numbers        from(file);
    const auto     fits    = [n_vocab](token_id t) { return t >= 0 && t < n_vocab; };
    const auto     damaged = [&path] {
        return error(error_kind::bad_value, path +
                                                    " is damaged, or no n-gram cache of llama.cpp (--lookup-cache-static, "
                                                        "--lookup-cache-dynamic); make it again");
    };
    while (!from.at_end()) {
        ngram   key;
        int32_t n = 0;
        if (!from.take(key) || !from.take(std::span(&n, 1)) || n < 1 || size_t(n) > from.n_left() / 2) {
            throw damaged();
        }
        const auto end = std::ranges::find(key, -1);
        bool       ok  = end != key.begin() && std::all_of(end, key.end(), [](token_id t) { return t == -1; });
        bool       own = std::all_of(key.begin(), end, fits);
        for (std::array<int32_t, 2> pair{}; ok && n > 0; --n) {
            ok  = from.take(pair) && pair[1] > 0;
            own = own && fits(pair[0]);
            if (ok && own) {
                count(key, pair[0], std::min(pair[1], n_count_most));
            }
        }
        if (!ok) {
            throw damaged();
        }
        if (!own) {
            throw error(error_kind::bad_value, path + " has tokens that this model does not have; give an n-gram cache "
                                                      "that was made with this model's vocabulary");
        }
    }
}

void ngram_counts::save(const std::string & path) const {
    std::ofstream file(path, std::ios::binary);
    const auto    put = [&file](const auto & x) { file.write(reinterpret_cast<const char *>(&x), sizeof x); };
    for (const auto & [key, seen] : all_) {
        if (seen.empty()) {
            continue; // there was no memory for the first one
        }
        put(key);
        put(int32_t(seen.size()));
        for (const next & x : seen) {
            put(x.token);
            put(x.count);
        }
    }
    file.close();
    if (!file) {
        throw error("the n-gram cache " + path + " could not be written; free space on its disk");
    }
}

} // namespace duo
