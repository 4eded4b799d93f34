// Decodes files of pictures (stb_image) and sound (miniaudio) with libmtmd, for the child process that does nothing
// else (src/duo/generation/media_child.py). It loads this library without Python's import.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/compiler.h"
#include "base/freed_by.h"
#include "cpu/ggml_plugins.h"

#ifdef DUO_HAS_MTMD
#include <mtmd-helper.h>
#include <mtmd.h>
#endif

// What a file holds: RGB, row by row, or samples as 32-bit floats. It lives until the next call.
struct duo_decoded {
    const unsigned char * data    = nullptr;
    uint64_t              n_bytes = 0;
    uint32_t              width   = 0; // of a picture; 0: it is sound
    uint32_t              height  = 0;
};

// The child's constants have these numbers.
enum duo_decode_outcome : int {
    duo_decoded_it  = 0,
    duo_refused_it  = 1, // the file cannot be decoded
    duo_cannot_hear = 2, // the projector cannot be used
};

#ifdef DUO_HAS_MTMD

namespace {

using bitmap_ptr  = std::unique_ptr<mtmd_bitmap, duo::freed_by<mtmd_bitmap_free>>;
using context_ptr = std::unique_ptr<mtmd_context, duo::freed_by<mtmd_free>>;

// What libmtmd decodes by itself. Other files it would hand to a program.
bool is_picture(std::string_view file) {
    using namespace std::string_view_literals;
    constexpr std::array starts{"\x89PNG\r\n\x1a\n"sv, "\xff\xd8\xff"sv, "GIF87a"sv, "GIF89a"sv, "BM"sv};
    return std::any_of(starts.begin(), starts.end(), [file](std::string_view s) { return file.starts_with(s); });
}

// libmtmd asks a projector for the rate at which its model hears.
context_ptr heard_with(const char * projector) {
    duo::cpu::load_plugins();
    auto params          = mtmd_context_params_default();
    params.use_gpu       = false;
    params.n_threads     = 1;
    params.print_timings = false;
    params.warmup        = false;
    return context_ptr(mtmd_init_from_file(projector, nullptr, params));
}

bitmap_ptr decoded(const mtmd_context * context, std::string_view file) {
    // A picture that stb_image does not read might be a video, for which libmtmd would start ffprobe from PATH.
    auto options                        = mtmd_helper_init_opt_default();
    options.video_params.ffmpeg_bin_dir = "/dev/null"; // where no program is
    const auto * from                   = reinterpret_cast<const unsigned char *>(file.data());
    auto         made                   = mtmd_helper_bitmap_init_from_buf(context, from, file.size(), false, options);
    bitmap_ptr   bitmap(made.bitmap);
    if (made.video_ctx != nullptr) {
        mtmd_helper_video_free(made.video_ctx);
        bitmap.reset();
    }
    return bitmap;
}

} // namespace

// projector: a file of a kind that hears, for sound; null: a picture is wanted.
extern "C" DUO_EXPORT int duo_decode_media(const char * file, size_t n, const char * projector, duo_decoded * out) try {
    static bitmap_ptr  bitmap;
    static context_ptr hearing;
    *out = {};
    bitmap.reset();
    const std::string_view bytes(file, n);
    if (is_picture(bytes) != (projector == nullptr)) {
        return duo_refused_it;
    }
    if (projector != nullptr && hearing == nullptr && (hearing = heard_with(projector)) == nullptr) {
        return duo_cannot_hear;
    }
    bitmap = decoded(hearing.get(), bytes);
    if (bitmap == nullptr || mtmd_bitmap_is_audio(bitmap.get()) != (projector != nullptr)) {
        bitmap.reset();
        return duo_refused_it;
    }
    out->data    = mtmd_bitmap_get_data(bitmap.get());
    out->n_bytes = mtmd_bitmap_get_n_bytes(bitmap.get());
    if (projector == nullptr) {
        out->width  = mtmd_bitmap_get_nx(bitmap.get());
        out->height = mtmd_bitmap_get_ny(bitmap.get());
    }
    return duo_decoded_it;
} catch (...) { // the caller is Python's ctypes
    return duo_refused_it;
}

#else

extern "C" DUO_EXPORT int duo_decode_media(const char *, size_t, const char *, duo_decoded * out) {
    *out = {};
    return duo_refused_it;
}

#endif
