#pragma once
// Loading progress on stderr: bars that redraw on a terminal, a line per quarter otherwise.

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace k3pod {

// The mean rate of a load since it was first heard of.
class LoadRate {
  public:
    void update(int64_t done_bytes, int64_t total_bytes) {
        const auto now = std::chrono::steady_clock::now();
        if (!is_begun_ || done_bytes < last_bytes_) {
            is_begun_ = true;
            begin_ = now;
            first_bytes_ = done_bytes;
        }
        last_ = now;
        last_bytes_ = done_bytes;
        remaining_bytes_ = total_bytes - done_bytes;
    }
    // 0 while it is not known.
    double bytes_per_s() const {
        const double seconds = std::chrono::duration<double>(last_ - begin_).count();
        return seconds > 0 ? static_cast<double>(last_bytes_ - first_bytes_) / seconds : 0;
    }
    double remaining_s() const {
        return bytes_per_s() > 0 ? static_cast<double>(remaining_bytes_) / bytes_per_s() : 0;
    }

  private:
    bool is_begun_ = false;
    std::chrono::steady_clock::time_point begin_{}, last_{};
    int64_t first_bytes_ = 0, last_bytes_ = 0, remaining_bytes_ = 0;
};

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
        LoadRate rate;
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
