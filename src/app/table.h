#pragma once
// Columns of text for a terminal: the first left-aligned, numbers under numbers.

#include <string>
#include <vector>

namespace k3pod {

class TextTable {
  public:
    explicit TextTable(std::vector<std::string> titles);
    // Left-aligned like the first one.
    TextTable& left(size_t column);
    // As many cells as titles.
    // Control characters in a cell, which may come from another machine, are escaped.
    void add(std::vector<std::string> cells);
    // Title, rule, rows; each line ends with a newline. Empty without rows.
    std::string text() const;

  private:
    std::string line(const std::vector<std::string>& cells,
                     const std::vector<size_t>& widths) const;

    std::vector<std::vector<std::string>> rows_;  // titles first
    std::vector<bool> is_left_;
};

}  // namespace k3pod
