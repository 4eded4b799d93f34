#include "lone_head.h"

#include "base/error.h"
#include "head_file.h"

namespace duo {

void refuse_lone_head(const std::string & path) {
    if (read_head_file(path)) {
        throw error(error_kind::bad_value,
                    path + " is a draft head, which reads the hidden states of a target in the same process; use a "
                           "draft model for a target elsewhere");
    }
}

} // namespace duo
