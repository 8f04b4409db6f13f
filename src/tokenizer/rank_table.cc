#include "tokenizer/rank_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "k3pod/base/file.h"
#include "tokenizer/printable.h"

namespace k3pod {
namespace {

constexpr int64_t kFileLimitBytes = 64 << 20;  // K3's file has 2.8 MB.

int32_t base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

// Standard alphabet, padded. nullopt: not base64, or nothing in it.
std::optional<std::string> decode_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return std::nullopt;
    const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    text.remove_suffix(padding);
    std::string bytes;
    uint32_t bits = 0;
    int num_bits = 0;
    for (const char c : text) {
        const int32_t digit = base64_digit(c);
        if (digit < 0) return std::nullopt;
        bits = bits << 6 | static_cast<uint32_t>(digit);
        num_bits += 6;
        if (num_bits < 8) continue;
        num_bits -= 8;
        bytes += static_cast<char>(bits >> num_bits & 0xFFu);
    }
    return bytes;
}

Status refuse(const std::filesystem::path& file, int32_t line, std::string_view what) {
    return invalid_argument(fmt::format("{} line {}: {}", file.string(), line, what));
}

}  // namespace

struct RankTable::Entry {
    std::string bytes;
    int32_t rank;
    int32_t line;  // From 1.
};

Result<RankTable> RankTable::read(const std::filesystem::path& file) {
    K3POD_ASSIGN(std::vector<Entry> entries, read_entries(file));
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
    RankTable table;
    K3POD_TRY(table.index(file, entries));
    return table;
}

Result<std::vector<RankTable::Entry>> RankTable::read_entries(const std::filesystem::path& file) {
    K3POD_ASSIGN(const std::string text, read_text_file(file, kFileLimitBytes));
    std::vector<Entry> entries;
    std::string_view rest = text;
    for (int32_t line = 1; !rest.empty(); ++line) {
        const std::string_view content = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), content.size() + 1));
        const size_t space = content.find(' ');
        if (space == std::string_view::npos) {
            return refuse(
                file, line,
                fmt::format("expected base64, a space and a rank, found {}", printable(content)));
        }
        const auto bytes = decode_base64(content.substr(0, space));
        if (!bytes) {
            return refuse(file, line,
                          fmt::format("{} is not base64", printable(content.substr(0, space))));
        }
        const std::string_view number = content.substr(space + 1);
        int32_t rank = -1;
        const auto [end, error] = std::from_chars(number.begin(), number.end(), rank);
        if (error != std::errc() || end != number.end() || rank < 0) {
            return refuse(file, line, fmt::format("{} is not a rank from 0 on", printable(number)));
        }
        entries.push_back({*bytes, rank, line});
    }
    return entries;
}

Status RankTable::index(const std::filesystem::path& file, const std::vector<Entry>& entries) {
    byte_rank_.fill(kNone);
    size_t blob_bytes = 0;
    for (const Entry& e : entries) blob_bytes += e.bytes.size();
    blob_.reserve(blob_bytes);  // No growth below, so views into it hold.
    begin_.push_back(0);
    rank_of_.reserve(entries.size());
    for (int32_t rank = 0; rank < static_cast<int32_t>(entries.size()); ++rank) {
        const Entry& e = entries[static_cast<size_t>(rank)];
        if (e.rank < rank) {
            return refuse(file, e.line,
                          fmt::format("rank {} is given twice, first in line {}", e.rank,
                                      entries[static_cast<size_t>(rank) - 1].line));
        }
        if (e.rank > rank) {
            return refuse(
                file, e.line,
                fmt::format("rank {} is given but rank {} is missing from the file; ranks "
                            "must be dense from 0",
                            e.rank, rank));
        }
        blob_.insert(blob_.end(), e.bytes.begin(), e.bytes.end());
        begin_.push_back(static_cast<uint32_t>(blob_.size()));
        if (const auto [at, fresh] = rank_of_.emplace(bytes(rank), rank); !fresh) {
            return refuse(file, e.line,
                          fmt::format("rank {} has the bytes of rank {}", rank, at->second));
        }
        longest_bytes_ = std::max(longest_bytes_, e.bytes.size());
        if (e.bytes.size() == 1) byte_rank_[static_cast<uint8_t>(e.bytes[0])] = rank;
    }
    const auto gap = std::find(byte_rank_.begin(), byte_rank_.end(), kNone);
    if (gap == byte_rank_.end()) return Status::ok();
    return invalid_argument(
        fmt::format("{}: has {} ranks, none of them for the single byte 0x{:02x}; "
                    "every byte needs one",
                    file.string(), entries.size(), gap - byte_rank_.begin()));
}

std::string_view RankTable::bytes(int32_t rank) const {
    const auto i = static_cast<size_t>(rank);
    return {blob_.data() + begin_[i], begin_[i + 1] - begin_[i]};
}

int32_t RankTable::find(std::string_view bytes) const {
    if (bytes.size() > longest_bytes_) return kNone;
    const auto at = rank_of_.find(bytes);
    return at == rank_of_.end() ? kNone : at->second;
}

}  // namespace k3pod
