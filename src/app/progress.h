#pragma once
// Loading progress on stderr: bars that redraw on a terminal, a line per quarter otherwise.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace k3pod {

// One line per name ("station", "spark-1"). Any thread.
class ProgressBoard {
  public:
    // `fd` is where it draws; bars when it is a terminal.
    explicit ProgressBoard(int fd);
    void update(const std::string& name, int64_t done_bytes, int64_t total_bytes);
    // Ends the drawing, so that log lines follow on their own lines.
    void finish();

  private:
    struct Line {
        int64_t done = 0, total = 0;
        int quarter = -1;
    };
    void draw_bars_locked();
    void print_line_locked(const std::string& name, Line& line);
    void write_all(const std::string& text) const;

    int fd_;
    bool is_terminal_;
    std::mutex mutex_;
    std::map<std::string, Line> lines_;
    size_t drawn_ = 0;
};

}  // namespace k3pod
