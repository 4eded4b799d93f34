#include "packed_file.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "cpu/team.h"
#include "memory.h"
#include "packed_header.h"

namespace duo {

namespace {

constexpr size_t n_at_once = 64; // pieces between two questions whether to go on

error unusable(const std::string & path, const std::string & why) {
    return error(error_kind::bad_value, "the packed weights in " + path + " " + why + "; run duo pack again");
}

} // namespace

packed_file::packed_file(const std::string & path, const std::string & source) : path_(path) {
    if (std::error_code ec; std::filesystem::file_size(path, ec) == 0) {
        throw unusable(path, "are incomplete");
    }
    map_               = std::make_shared<const file_map>(path);
    packed_header head = read_packed_header(path, *map_);
    if (!head.fault.empty()) {
        throw unusable(path, head.fault);
    }
    if (head.source != source) {
        throw unusable(path, "were made from another file, or the model's file has changed since");
    }
    if (map_->size() > memory_available()) {
        map_->use_small_pages();
    }
    tensors_ = std::move(head.tensors);
    sums_    = std::move(head.sums);
}

void packed_file::check(int n_threads, const std::function<bool(float)> & keep_going) const {
    const std::vector<summed_piece> pieces = pieces_of(tensors_);
    std::atomic<bool>               good   = true;
    for (size_t begin = 0; good && begin < pieces.size(); begin += n_at_once) {
        if (keep_going && !keep_going(float(begin) / float(pieces.size()))) {
            throw error(error_kind::cancelled, "loading was stopped");
        }
        const size_t        end  = std::min(begin + n_at_once, pieces.size());
        std::atomic<size_t> next = begin;
        cpu::on_team(n_threads, [&] {
            for (size_t i = next++; i < end; i = next++) {
                if (checksum(map_->data() + pieces[i].offset, pieces[i].n_bytes) != sums_[i]) {
                    good = false;
                }
            }
        });
    }
    if (!good) {
        throw unusable(path_, "are damaged");
    }
}

std::shared_ptr<const cpu::packed_weights> packed_file::weights() const {
    auto all = std::make_shared<cpu::packed_weights>(map_);
    for (const packed_tensor & t : tensors_) {
        all->add(t.name, {t.type, t.stored, t.n_columns, t.n_rows, t.n_matrices, map_->data() + t.offset, t.n_bytes});
    }
    return all;
}

} // namespace duo
