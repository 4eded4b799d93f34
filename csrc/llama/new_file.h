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
    // Gives it the permissions of a file that it stands for, and the owner where the system allows.
    void take_permissions(const std::string & of) const;
    // Waits until the disk has it all. Returns where it is so far. drop: what is read there comes from the disk, as far
    // as the system allows.
    const std::string & sync(bool drop = false);
    // Closes it. After sync(). replaces: a file that has the name already.
    void rename(bool replaces);

  private:
    void              require(bool done) const;
    [[noreturn]] void fail(const std::string & why) const;

    std::string                                       path_, part_;
    const char *                                      what_;
    std::unique_ptr<std::FILE, freed_by<std::fclose>> file_;
    bool                                              done_ = false;
};

} // namespace duo
