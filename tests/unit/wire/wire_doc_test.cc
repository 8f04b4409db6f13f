// docs/wire.md promises a byte table; this holds it against the struct that both ends compile.

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "k3pod/wire/frame.h"
#include "k3pod/wire/stage.h"

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

// Rows of the form "| 12 | 4 | `name` | ..." below the line `heading`.
Table table_below(const std::string& heading, const std::string& page = "wire.md") {
    std::ifstream file(K3POD_SOURCE_DIR "/docs/" + page);
    EXPECT_TRUE(file.is_open()) << "docs/" << page << " is missing";
    Table table;
    bool is_inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## ")) is_inside = line == heading;
        size_t offset = 0, bytes = 0;
        char name[64];
        const bool is_row =
            std::sscanf(line.c_str(), "| %zu | %zu | `%63[a-z_]` |", &offset, &bytes, name) == 3;
        if (!is_inside || !is_row) continue;
        const bool is_new = table.emplace(name, Place{offset, bytes}).second;
        EXPECT_TRUE(is_new) << "field " << name << " is listed twice";
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

TEST(WireDoc, stage_header_table_matches_the_struct) {
    const Table expected = {
        PLACE(StageHeader, magic),         PLACE(StageHeader, version),
        PLACE(StageHeader, kind),          PLACE(StageHeader, zero),
        PLACE(StageHeader, session),       PLACE(StageHeader, shard),
        PLACE(StageHeader, payload_bytes), PLACE(StageHeader, offset),
        PLACE(StageHeader, shard_bytes),   PLACE(StageHeader, shard_hash),
        PLACE(StageHeader, chunk_hash),    PLACE(StageHeader, also_zero),
        PLACE(StageHeader, header_check),
    };
    EXPECT_EQ(table_below("## The wire", "staging.md"), expected);
}

TEST(WireDoc, entry_table_matches_the_struct) {
    const Table expected = {PLACE(WireEntry, row), PLACE(WireEntry, expert),
                            PLACE(WireEntry, weight)};
    EXPECT_EQ(table_below("## Entries"), expected);
}

}  // namespace
}  // namespace k3pod::wire
