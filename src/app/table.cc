#include "table.h"

#include <algorithm>

#include "k3pod/base/check.h"
#include "k3pod/base/text.h"

namespace k3pod {

TextTable::TextTable(std::vector<std::string> titles) : is_left_(titles.size(), false) {
    is_left_.front() = true;
    rows_.push_back(std::move(titles));
}

TextTable& TextTable::left(size_t column) {
    is_left_.at(column) = true;
    return *this;
}

void TextTable::add(std::vector<std::string> cells) {
    K3POD_CHECK(cells.size() == is_left_.size(), "a row has as many cells as the table has titles");
    for (std::string& cell : cells) cell = escape_controls(cell);
    rows_.push_back(std::move(cells));
}

std::string TextTable::line(const std::vector<std::string>& cells,
                            const std::vector<size_t>& widths) const {
    std::string out;
    for (size_t i = 0; i < cells.size(); ++i) {
        const std::string padding(widths[i] - cells[i].size(), ' ');
        out += is_left_[i] ? cells[i] + padding : padding + cells[i];
        out += "  ";
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
}

std::string TextTable::text() const {
    if (rows_.size() == 1) return {};
    std::vector<size_t> widths(is_left_.size(), 0);
    for (const auto& row : rows_) {
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out = line(rows_.front(), widths);
    std::vector<std::string> rule;
    for (const size_t width : widths) rule.emplace_back(width, '-');
    out += line(rule, widths);
    for (size_t i = 1; i < rows_.size(); ++i) out += line(rows_[i], widths);
    return out;
}

}  // namespace k3pod
