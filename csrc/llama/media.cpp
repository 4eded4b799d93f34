#include "media.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/error.h"

#ifdef DUO_HAS_MTMD
#include <mtmd.h>
#endif

namespace duo {

#ifdef DUO_HAS_MTMD

namespace {

constexpr size_t n_samples_least = 1600; // libmtmd aborts at one sample (mtmd.cpp)

} // namespace

void media::closer::operator()(mtmd_bitmap * b) const {
    mtmd_bitmap_free(b);
}

media::media(mtmd_bitmap * made, size_t n_bytes, const std::string & id) : bitmap_(made), n_bytes_(n_bytes) {
    if (id.size() != 64) {
        throw error("a picture has an id of " + std::to_string(id.size()) + " digits, and not of 64");
    }
    mtmd_bitmap_set_id(made, id.c_str());
}

media media::picture(std::span<const char> pixels, uint32_t width, uint32_t height, const std::string & id) {
    if (width == 0 || height == 0 || pixels.size() != size_t(width) * height * 3) {
        throw error("a picture of " + std::to_string(width) + " x " + std::to_string(height) + " pixels has " +
                    std::to_string(pixels.size()) + " bytes");
    }
    return {mtmd_bitmap_init(width, height, reinterpret_cast<const unsigned char *>(pixels.data())), pixels.size(), id};
}

media media::sound(std::span<const char> samples, const std::string & id) {
    if (samples.size() % sizeof(float) != 0) {
        throw error("the samples of sound have " + std::to_string(samples.size()) + " bytes");
    }
    if (samples.size() / sizeof(float) < n_samples_least) {
        throw error(error_kind::bad_value, "a sound is shorter than a tenth of a second; give a longer one");
    }
    std::vector<float> floats(samples.size() / sizeof(float));
    std::memcpy(floats.data(), samples.data(), samples.size());
    if (!std::all_of(floats.begin(), floats.end(), [](float x) { return std::isfinite(x); })) {
        throw error(error_kind::bad_value, "a sound has samples that are no numbers; save it anew");
    }
    return {mtmd_bitmap_init_from_audio(floats.size(), floats.data()), samples.size(), id};
}

#else

void media::closer::operator()(mtmd_bitmap *) const {
}

media media::picture(std::span<const char>, uint32_t, uint32_t, const std::string &) {
    throw error("duo was built without libmtmd");
}

media media::sound(std::span<const char>, const std::string &) {
    throw error("duo was built without libmtmd");
}

#endif

} // namespace duo
