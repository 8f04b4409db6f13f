// docs/wire.md promises a byte table; this holds it against the struct that both ends compile.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "k3pod/wire/frame.h"

namespace k3pod::wire {
namespace {

struct Place {
    size_t offset;
    size_t bytes;
    bool operator==(const Place&) const = default;
};

void PrintTo(const Place& place, std::ostream* out) {
    *out << "offset " << place.offset << ", " << place.bytes << " bytes";
}

using Table = std::map<std::string, Place>;

// Rows of the form "| 12 | 4 | `name` | ..." below the line that starts with `heading`.
Table table_below(const std::string& heading) {
    std::ifstream file(K3POD_SOURCE_DIR "/docs/wire.md");
    EXPECT_TRUE(file.is_open()) << "docs/wire.md is missing";
    const std::regex row(R"(^\| *(\d+) *\| *(\d+) *\| *`(\w+)` *\|.*)");
    Table table;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## ")) inside = line == heading;
        std::smatch match;
        if (!inside || !std::regex_match(line, match, row)) continue;
        const bool is_new =
            table.emplace(match[3], Place{std::stoul(match[1]), std::stoul(match[2])}).second;
        EXPECT_TRUE(is_new) << "field " << match[3] << " is listed twice";
    }
    return table;
}

#define PLACE(type, field)                             \
    {                                                  \
#field, Place {                                \
            offsetof(type, field), sizeof(type::field) \
        }                                              \
    }

TEST(WireDoc, header_table_matches_the_struct) {
    const Table expected = {
        PLACE(FrameHeader, magic),         PLACE(FrameHeader, version),
        PLACE(FrameHeader, kind),          PLACE(FrameHeader, flags),
        PLACE(FrameHeader, session),       PLACE(FrameHeader, epoch),
        PLACE(FrameHeader, layer),         PLACE(FrameHeader, rows),
        PLACE(FrameHeader, step),          PLACE(FrameHeader, entries),
        PLACE(FrameHeader, payload_bytes), PLACE(FrameHeader, sent_ns),
        PLACE(FrameHeader, attempt),       PLACE(FrameHeader, status),
        PLACE(FrameHeader, node),          PLACE(FrameHeader, part),
        PLACE(FrameHeader, payload_check), PLACE(FrameHeader, header_check),
    };
    EXPECT_EQ(table_below("## Header"), expected);
}

TEST(WireDoc, header_table_leaves_no_byte_out) {
    size_t covered = 0;
    for (const auto& [name, place] : table_below("## Header")) covered += place.bytes;
    EXPECT_EQ(covered, 64u);
}

TEST(WireDoc, entry_table_matches_the_struct) {
    const Table expected = {PLACE(WireEntry, row), PLACE(WireEntry, expert),
                            PLACE(WireEntry, weight)};
    EXPECT_EQ(table_below("## Entries"), expected);
}

}  // namespace
}  // namespace k3pod::wire
