// Pictures and sound of prompts, decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct mtmd_bitmap;

namespace duo {

// What a file in a prompt holds. It does not change.
class media {
  public:
    // pixels: RGB, row by row. id: of the file, 64 hexadecimal digits. Throws duo::error.
    static media picture(std::span<const char> pixels, uint32_t width, uint32_t height, const std::string & id);
    // samples: 32-bit floats at the rate that the model hears. Throws duo::error.
    static media sound(std::span<const char> samples, const std::string & id);

    [[nodiscard]] const mtmd_bitmap * bitmap() const { return bitmap_.get(); }
    [[nodiscard]] size_t              n_bytes() const { return n_bytes_; } // of pixels or samples

  private:
    struct closer {
        void operator()(mtmd_bitmap * b) const;
    };

    media(mtmd_bitmap * made, size_t n_bytes, const std::string & id);

    std::unique_ptr<mtmd_bitmap, closer> bitmap_;
    size_t                               n_bytes_;
};

} // namespace duo
