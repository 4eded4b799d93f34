#include "packed_file.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <new>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "cpu/team.h"
#include "memory.h"
#include "packed_header.h"
#include "recent_files.h"

namespace duo {

namespace {

constexpr size_t n_at_once = 64; // pieces between two questions whether to go on

// Headers that can be used, until their models are loaded. A command opens its packed file ten times before.
recent_files<packed_header> packed_headers;

} // namespace

void forget_packed_header(const std::string & path) {
    std::error_code ec;
    packed_headers.forget(std::filesystem::canonical(path, ec));
}

packed_file::packed_file(const std::string & path, bool alone) : path_(path), alone_(alone) {
    if (std::error_code ec; std::filesystem::file_size(path, ec) == 0) {
        throw unusable("are incomplete");
    }
    const auto before = version_of(path);
    map_              = std::make_shared<const file_map>(path);
    const bool known  = before && before == version_of(path);
    header_           = known ? packed_headers.find(*before) : nullptr;
    if (header_ == nullptr) {
        read_header();
        if (known) {
            packed_headers.keep(*before, header_);
        }
    } else {
        pieces_ = std::make_shared<const std::vector<summed_piece>>(pieces_of(*header_));
    }
    if (map_->size() > memory_available()) {
        map_->use_small_pages();
    }
}

void packed_file::read_header() {
    try {
        header_ = std::make_shared<const packed_header>(read_packed_header(path_, *map_));
    } catch (const std::bad_alloc &) {
        throw error(error_kind::does_not_fit, "there is not enough memory to read the header of " + path_);
    } catch (const std::exception & e) { // libggml's, of a damaged header
        throw unusable(std::string("cannot be read: ") + e.what());
    }
    if (header_->is_other_version && alone_ && !header_->origin.release.empty()) {
        throw error(error_kind::bad_value,
                    "the packed weights in " + path_ + " " + header_->fault + ", " + header_->origin.release +
                        "; install that one and make the model's own file with it: duo pack --unpack");
    }
    if (!header_->fault.empty()) {
        throw unusable(header_->fault);
    }
    pieces_ = std::make_shared<const std::vector<summed_piece>>(pieces_of(*header_));
    // What follows relies on the header of the model's file.
    std::vector<size_t> front;
    const packed_rest & rest = header_->rest;
    for (size_t i = 0; i < pieces_->size(); ++i) {
        if ((*pieces_)[i].offset >= rest.offset && (*pieces_)[i].offset < rest.offset + rest.n_front) {
            front.push_back(i);
        }
    }
    check_pieces(front, 1);
}

error packed_file::unusable(const std::string & why) const {
    return error(error_kind::bad_value,
                 "the packed weights in " + path_ + " " + why +
                     (alone_ ? "; get this file or the model's own again" : "; run duo pack again"));
}

void packed_file::check_source(const std::string & source) const {
    if (header_->origin.source != source) {
        throw unusable("were made from another file, or the model's file has changed since");
    }
}

void packed_file::check_pieces(const std::vector<size_t> & which, int n_threads) const {
    constexpr size_t    none = SIZE_MAX;
    std::atomic<size_t> bad  = none;
    std::atomic<size_t> next = 0;
    cpu::on_team(n_threads, [&] {
        for (size_t i = next++; i < which.size(); i = next++) {
            const summed_piece & p = (*pieces_)[which[i]];
            if (checksum(map_->data() + p.offset, p.n_bytes) != header_->sums[which[i]]) {
                bad = which[i];
            }
        }
    });
    if (bad == none) {
        return;
    }
    const summed_piece & p = (*pieces_)[bad];
    const auto in = std::find_if(header_->tensors.begin(), header_->tensors.end(), [&p](const packed_tensor & t) {
        return p.offset >= t.offset && p.offset < t.offset + t.n_bytes;
    });
    throw unusable("are damaged (bytes " + std::to_string(p.offset) + " to " + std::to_string(p.offset + p.n_bytes) +
                   (in == header_->tensors.end() ? "" : ", of " + in->name) + ")");
}

void packed_file::check(int n_threads, const std::function<bool(float)> & keep_going) const {
    const size_t n = header_->sums.size();
    for (size_t begin = 0; begin < n; begin += n_at_once) {
        if (keep_going && !keep_going(float(begin) / float(n))) {
            throw error(error_kind::cancelled, "loading was stopped");
        }
        std::vector<size_t> which(std::min(n_at_once, n - begin));
        std::iota(which.begin(), which.end(), begin);
        check_pieces(which, n_threads);
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
