// The files of a model in memory, from which duo packs weights. libllama would read each tensor into memory of its own
// first, with one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_map.h"
#include "cpu/weight_memory.h"
#include "file_header.h"
#include "unpacked_file.h"

namespace duo {

// In the order of the header's parts. Throws duo::error: a file cannot be mapped.
std::vector<std::shared_ptr<const file_map>> map_parts(const file_header & header);

class model_parts {
  public:
    // unpacked: what `path` has, if it is a packed file. Throws duo::error: a file cannot be read or mapped.
    model_parts(const std::string & path, shared_unpacked unpacked);

    // Gives it all tensors that it has, in the order of the files. keep_going: gets the share of them that is done;
    // false: stop. Returns whether all were given.
    bool fill(cpu::weight_loading & weights, const std::function<bool(float)> & keep_going) const;

    // That it reads; none if something must be unpacked.
    [[nodiscard]] const std::vector<std::shared_ptr<const file_map>> & files() const { return maps_; }

  private:
    file_header                                  header_;
    shared_unpacked                              unpacked_;
    std::vector<std::shared_ptr<const file_map>> maps_; // of header_.parts, if nothing must be unpacked
};

} // namespace duo
