// How the draft of one text is reached: whether it was told to begin, and what it has read of the text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/messages.h"
#include "base/same.h"
#include "text/draft_prompt.h"
#include "text/draft_window.h"
#include "tree/mirror_tree.h"

namespace duo {

// Belongs to the verify worker's thread.
class draft_contact {
  public:
    enum class state : uint8_t {
        none,     // the text has no draft, the draft failed, or the draft's host was lost
        owed,     // the draft will be told to begin when that pays
        returned, // the draft's host came back in mid-text: the draft will be told to begin
        reading,  // the draft was told to begin in mid-text, or to go on after a while, and has not guessed yet
        at_work,
        late, // the draft let a wait run out and has sent nothing since
    };

    // A text begins.
    void begin(const request & req) {
        state_  = state::none;
        n_read_ = req.pictures.empty() ? n_same(read_, req.prompt) : n_same(read_, text_for_draft(req, req.prompt));
        n_read_ = pictures_for_draft(req).whole(n_read_);
    }
    // The text ends. What its draft has read stays known for the next one.
    void end(const request & req, std::span<const token_id> tokens) noexcept {
        state_ = state::none;
        told_  = nullptr;
        try {
            read_ = text_for_draft(req, tokens);
            read_.resize(std::min(read_.size(), size_t(n_read_)));
        } catch (...) {
            read_.clear(); // there is no memory for it, and no text needs it
        }
    }

    [[nodiscard]] state now() const { return state_; }
    void                set(state s) { state_ = s; }
    // The draft was told to begin, and nothing has happened since that makes it useless.
    [[nodiscard]] bool drafting() const { return state_ >= state::reading; }
    [[nodiscard]] bool late() const { return state_ == state::late; }
    // The text goes on without its draft; the reader is told why.
    void lose(request & of, const char * warning) noexcept {
        state_ = state::none;
        try {
            of.warning = warning;
        } catch (...) {
            of.warning = "out of memory"; // so short a string needs no memory of its own
        }
    }

    // What the draft was told to begin last; null: nothing.
    [[nodiscard]] const request * told() const { return told_; }
    void                          tell(const request & req, const draft_window & window) {
        told_   = &req;
        window_ = window;
    }

    // A message of the draft has come.
    void on_message() { state_ = late() ? state::at_work : state_; }
    // It was a node. n_tokens: of the text, of which the draft has read all if a node below its end is news.
    void on_node(mirror_tree::news what, int32_t n_tokens) {
        const bool grows = what == mirror_tree::news::grown || what == mirror_tree::news::revised;
        // A draft that reads first gives names to the tokens that it is told.
        const bool works = grows || (state_ != state::reading && what != mirror_tree::news::stale);
        state_           = works ? state::at_work : state_;
        n_read_          = grows ? n_tokens : n_read_;
    }

    // Of what the draft's cache holds of the text, the first n tokens may be of use later.
    void forget_read(int32_t n) { n_read_ = std::min(n_read_, n); }
    // Between texts: what the cache holds now, without a window.
    void set_read(std::span<const token_id> tokens) noexcept {
        window_ = {};
        try {
            read_.assign(tokens.begin(), tokens.end());
        } catch (...) {
            read_.clear();
        }
    }
    // Of the text's first n_text tokens, those that it has not read yet.
    [[nodiscard]] int32_t n_unread(int32_t n_text) const { return std::max(0, n_text - n_read_); }
    // How the draft would read the text's n_text tokens if it is to read the last n_window ones.
    [[nodiscard]] draft_reading reading_of(int32_t n_text, int32_t n_window) const {
        return draft_reading::of(window_, std::min(n_read_, n_text - 1), n_text, n_window);
    }

  private:
    state                 state_  = state::none;
    const request *       told_   = nullptr;
    int32_t               n_read_ = 0; // leading tokens of the text that its cache holds or has left out
    std::vector<token_id> read_;       // what its cache holds of the last text, or has left out
    draft_window          window_;     // which of these it has left out
};

} // namespace duo
