// A file that is complete or not there at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/freed_by.h"

namespace duo {

// Written beside its final name, and renamed when it is complete and on the disk. Everything throws duo::error if the
// file cannot be written.
class new_file {
  public:
    // what: it is, for messages ("the packed weights").
    new_file(const std::string & path, const char * what);
    ~new_file();
    new_file(const new_file &)             = delete;
    new_file & operator=(const new_file &) = delete;

    // Throws duo::error: the folder has less space than this.
    void need(uint64_t n_bytes) const;
    void write(const void * data, size_t n);
    void seek(uint64_t at);
    // Waits until the disk has it all, and closes it. Returns where it is so far. drop: what is read there comes from
    // the disk, as far as the system allows.
    const std::string & close(bool drop = false);
    // After close().
    void rename();

  private:
    void              require(bool done) const;
    [[noreturn]] void fail(const std::string & why) const;

    std::string                                       path_, part_;
    const char *                                      what_;
    std::unique_ptr<std::FILE, freed_by<std::fclose>> file_;
    bool                                              done_ = false;
};

} // namespace duo
