#include "model_parts.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "cpu/team.h"

namespace duo {

std::vector<std::shared_ptr<const file_map>> map_parts(const file_header & header) {
    std::vector<std::shared_ptr<const file_map>> maps;
    for (const std::string & part : header.parts) {
        maps.push_back(std::make_shared<const file_map>(part, true));
    }
    return maps;
}

model_parts::model_parts(const std::string & path, shared_unpacked unpacked)
    : header_(read_file_header(path)), unpacked_(std::move(unpacked)) {
    if (unpacked_ == nullptr) {
        maps_ = map_parts(header_);
    }
    std::sort(header_.tensors.begin(), header_.tensors.end(), [](const header_tensor & a, const header_tensor & b) {
        return std::tie(a.part, a.offset) < std::tie(b.part, b.offset);
    });
}

bool model_parts::fill(cpu::weight_loading & weights, const std::function<bool(float)> & keep_going) const {
    uint64_t n_all = 0, n_done = 0;
    for (const header_tensor & t : header_.tensors) {
        n_all += weights.has(t.name) ? t.n_bytes : 0;
    }
    size_t               n_given = 0;
    std::vector<uint8_t> bytes; // of one tensor
    for (const header_tensor & t : header_.tensors) {
        if (!weights.has(t.name)) {
            continue;
        }
        if (keep_going && !keep_going(float(double(n_done) / double(n_all)))) {
            return false;
        }
        bool given = false;
        if (unpacked_ != nullptr) {
            bytes.resize(weights.reads(t.name) ? size_t(t.n_bytes) : 0);
            unpacked_->read(t.offset, bytes.data(), bytes.size(), cpu::threads_here());
            given = weights.give(t.name, bytes.data(), t.n_bytes) && !unpacked_->lost();
        } else {
            const file_map & part = *maps_[t.part];
            given = t.offset + t.n_bytes <= part.size() && weights.give(t.name, part.data() + t.offset, t.n_bytes) &&
                    !part.lost();
            part.forget(t.offset, t.n_bytes);
        }
        if (!given) {
            throw error(error_kind::bad_value, header_.parts[t.part] + " has changed while it was read; try again");
        }
        n_done += t.n_bytes;
        ++n_given;
    }
    if (n_given != weights.n_placed()) {
        throw error("two weights have one name, or one that the file does not have"); // no architecture is known to
    }
    return !keep_going || keep_going(1.0f);
}

} // namespace duo
