#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace k3pod {
namespace {

constexpr int kBarWidth = 30;

double fraction(int64_t done, int64_t total) {
    return total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
}

std::string amount(int64_t done, int64_t total) {
    constexpr double kMiB = 1048576.0, kGiB = 1073741824.0;
    const bool large = static_cast<double>(total) >= 10 * kGiB;
    const double unit = large ? kGiB : kMiB;
    return fmt::format("{:.1f} / {:.1f} {}", static_cast<double>(done) / unit,
                       static_cast<double>(total) / unit, large ? "GiB" : "MiB");
}

// ", 2.41 GB/s, 38 s left"; nothing while the rate is not known.
std::string speed(const LoadRate& rate) {
    if (rate.bytes_per_s() <= 0) return {};
    return fmt::format(", {:.2f} GB/s, {:.0f} s left", rate.bytes_per_s() / 1e9,
                       rate.remaining_s());
}

}  // namespace

ProgressBoard::ProgressBoard(int fd) : fd_(fd), is_terminal_(isatty(fd) == 1) {}

void ProgressBoard::update(const std::string& name, int64_t done_bytes, int64_t total_bytes) {
    const std::lock_guard lock(mutex_);
    Line& line = lines_[name];
    line.done = done_bytes;
    line.total = total_bytes;
    line.rate.update(done_bytes, total_bytes);
    if (is_terminal_) {
        draw_bars_locked();
    } else {
        print_line_locked(name, line);
    }
}

void ProgressBoard::finish() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
    drawn_ = 0;
}

void ProgressBoard::draw_bars_locked() {
    std::string out = drawn_ > 0 ? fmt::format("\x1b[{}A", drawn_) : "";
    for (const auto& [name, line] : lines_) {
        const double part = fraction(line.done, line.total);
        const int filled = static_cast<int>(part * kBarWidth);
        out += fmt::format("\x1b[2K{:<12} [{}{}] {:3.0f} %  {}{}\n", name, std::string(filled, '#'),
                           std::string(kBarWidth - filled, '.'), part * 100,
                           amount(line.done, line.total), speed(line.rate));
    }
    drawn_ = lines_.size();
    write_all(out);
}

void ProgressBoard::print_line_locked(const std::string& name, Line& line) {
    const int quarter = static_cast<int>(fraction(line.done, line.total) * 4);
    if (quarter == line.quarter) return;
    line.quarter = quarter;
    write_all(fmt::format("{} loaded {} % ({}{})\n", name, quarter * 25,
                          amount(line.done, line.total), speed(line.rate)));
}

void ProgressBoard::write_all(const std::string& text) const {
    size_t sent = 0;
    while (sent < text.size()) {
        const ssize_t n = ::write(fd_, text.data() + sent, text.size() - sent);
        if (n <= 0) return;  // Progress is not worth failing for.
        sent += static_cast<size_t>(n);
    }
}

}  // namespace k3pod
