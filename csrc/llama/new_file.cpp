#include "new_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include "base/error.h"

namespace duo {

namespace fs = std::filesystem;

new_file::new_file(const std::string & path, const char * what)
    : path_(path), part_(path + "." + std::to_string(std::random_device()()) + ".part"), what_(what) {
    file_.reset(std::fopen(part_.c_str(), "wbx"));
    require(file_ != nullptr);
}

new_file::~new_file() {
    file_.reset();
    if (!done_) {
        std::error_code ec;
        fs::remove(part_, ec);
    }
}

void new_file::need(uint64_t n_bytes) const {
    std::error_code ec;
    const fs::path  folder = fs::absolute(path_, ec).parent_path();
    if (const auto space = fs::space(folder, ec); !ec && space.available < n_bytes) {
        throw error(error_kind::does_not_fit, std::string(what_) + " need " + std::to_string(n_bytes >> 20) +
                                                  " MiB, and " + folder.string() + " has " +
                                                  std::to_string(space.available >> 20) +
                                                  " MiB free; free disk space or name another file (-o)");
    }
}

void new_file::write(const void * data, size_t n) {
    require(std::fwrite(data, 1, n, file_.get()) == n);
}

void new_file::seek(uint64_t at) {
    require(std::fflush(file_.get()) == 0 && std::fseek(file_.get(), long(at), SEEK_SET) == 0);
}

void new_file::take_permissions([[maybe_unused]] const std::string & of) const {
#if defined(__unix__) || defined(__APPLE__)
    struct stat facts {};
    if (stat(of.c_str(), &facts) != 0) {
        return; // whoever reads it says so
    }
    const int    file    = fileno(file_.get());
    const bool   same    = fchown(file, geteuid() == 0 ? facts.st_uid : uid_t(-1), facts.st_gid) == 0;
    const mode_t all     = facts.st_mode & 0777;
    const mode_t allowed = same ? all : (all & 0707) | (all & 07) << 3; // another group is as all others
    require(fchmod(file, allowed) == 0 || errno == EPERM || errno == ENOTSUP);
#endif
}

const std::string & new_file::sync([[maybe_unused]] bool drop) {
    require(std::fflush(file_.get()) == 0);
#if defined(__unix__) || defined(__APPLE__)
    require(fsync(fileno(file_.get())) == 0); // or a power failure leaves zeros where weights should be
#endif
#if defined(POSIX_FADV_DONTNEED)
    if (drop) {
        posix_fadvise(fileno(file_.get()), 0, 0, POSIX_FADV_DONTNEED);
    }
#endif
    return part_;
}

void new_file::rename(bool replaces) {
    require(std::fclose(file_.release()) == 0);
    std::error_code ec;
    if (!replaces) {
        fs::create_hard_link(part_, path_, ec); // fails if there is such a file, even one of just now
        if (!ec) {
            return; // and the other name goes
        }
        if (std::error_code unknown; fs::exists(path_, unknown) || unknown) {
            throw error(error_kind::bad_value, path_ + " exists; choose another name (-o), or remove it");
        }
    }
    fs::rename(part_, path_, ec);
    if (ec) {
        fail(ec.message());
    }
    done_ = true;
}

void new_file::require(bool done) const {
    if (!done) {
        fail(std::strerror(errno));
    }
}

void new_file::fail(const std::string & why) const {
    throw error(error_kind::does_not_fit, std::string(what_) + " cannot be written to " + path_ + ": " + why +
                                              "; free disk space or name another file (-o)");
}

} // namespace duo
