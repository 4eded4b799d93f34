#include "packed_file.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "cpu/team.h"
#include "memory.h"
#include "packed_header.h"

namespace duo {

namespace {

constexpr size_t n_at_once = 64; // pieces between two questions whether to go on

} // namespace

packed_file::packed_file(const std::string & path, bool alone) : path_(path), alone_(alone) {
    if (std::error_code ec; std::filesystem::file_size(path, ec) == 0) {
        throw unusable("are incomplete");
    }
    map_ = std::make_shared<const file_map>(path);
    try {
        header_ = std::make_shared<const packed_header>(read_packed_header(path, *map_));
    } catch (const std::exception & e) { // libggml's, of a damaged header
        throw unusable(std::string("cannot be read: ") + e.what());
    }
    if (!header_->fault.empty()) {
        throw unusable(header_->fault);
    }
    // What follows relies on the header of the model's file.
    std::vector<size_t>             front;
    const std::vector<summed_piece> pieces = pieces_of(*header_);
    for (size_t i = 0; i < pieces.size(); ++i) {
        if (pieces[i].offset >= header_->rest.offset &&
            pieces[i].offset < header_->rest.offset + header_->rest.n_front) {
            front.push_back(i);
        }
    }
    if (!is_good(front, 1)) {
        throw unusable("are damaged");
    }
    if (map_->size() > memory_available()) {
        map_->use_small_pages();
    }
}

error packed_file::unusable(const std::string & why) const {
    return error(error_kind::bad_value,
                 "the packed weights in " + path_ + " " + why +
                     (alone_ ? "; get this file or the model's own again" : "; run duo pack again"));
}

void packed_file::check_source(const std::string & source) const {
    if (header_->source != source) {
        throw unusable("were made from another file, or the model's file has changed since");
    }
}

bool packed_file::is_good(const std::vector<size_t> & which, int n_threads) const {
    const std::vector<summed_piece> pieces = pieces_of(*header_);
    std::atomic<bool>               good   = true;
    std::atomic<size_t>             next   = 0;
    cpu::on_team(n_threads, [&] {
        for (size_t i = next++; i < which.size(); i = next++) {
            const summed_piece & p = pieces[which[i]];
            if (checksum(map_->data() + p.offset, p.n_bytes) != header_->sums[which[i]]) {
                good = false;
            }
        }
    });
    return good;
}

void packed_file::check(int n_threads, const std::function<bool(float)> & keep_going) const {
    const size_t n = header_->sums.size();
    for (size_t begin = 0; begin < n; begin += n_at_once) {
        if (keep_going && !keep_going(float(begin) / float(n))) {
            throw error(error_kind::cancelled, "loading was stopped");
        }
        std::vector<size_t> which(std::min(n_at_once, n - begin));
        std::iota(which.begin(), which.end(), begin);
        if (!is_good(which, n_threads)) {
            throw unusable("are damaged");
        }
    }
}

std::shared_ptr<const cpu::packed_weights> packed_file::weights() const {
    auto all = std::make_shared<cpu::packed_weights>(map_);
    for (const packed_tensor & t : header_->tensors) {
        all->add(t.name, {t.type, t.stored, t.n_columns, t.n_rows, t.n_matrices, map_->data() + t.offset, t.n_bytes});
    }
    return all;
}

} // namespace duo
