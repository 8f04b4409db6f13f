#pragma once
// What UCX has to say goes through here instead of to stdout: its errors to our log, everything
// else only into the message of the call that failed.

#include <string>

namespace k3pod::ucx {

// While one lives, lines that UCX logs on this thread are kept in it and are not printed.
class LogCapture {
  public:
    LogCapture();
    ~LogCapture();
    LogCapture(const LogCapture&) = delete;
    LogCapture& operator=(const LogCapture&) = delete;

    bool is_empty() const { return lines_.empty(); }
    // One of the lines was an error in UCX's eyes.
    bool has_error() const { return has_error_; }
    // What UCX said so far, one sentence after another; empty when it said nothing.
    const std::string& text() const { return lines_; }
    // The same behind a sentence that it explains: "; UCX said: ...", or nothing at all.
    std::string clause() const;

  private:
    friend struct LogRouter;
    std::string lines_;
    bool has_error_ = false;
    LogCapture* outer_;
};

// Once per process, before the first context.
void route_ucx_log();

}  // namespace k3pod::ucx
