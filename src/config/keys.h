#pragma once
// The keys of each section of a pod file as data: name, how to read it, how to print it. Reading,
// printing, "unknown key" and "belongs to another section" all come from these tables.

#include <functional>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/config/pod_config.h"

namespace k3pod {

// A TOML value, as far as keys need it.
struct KeyValue {
    enum class Type { kString, kInteger, kBoolean, kArray, kTable, kOther } type = Type::kOther;
    std::string text;  // of a string; of anything else its spelling in messages
    int64_t integer = 0;
    bool boolean = false;
    std::string name;               // of a member of a table
    std::vector<KeyValue> members;  // of a table or array
};

template <class Section>
struct Key {
    std::string name;
    bool required = false;
    std::function<Status(const KeyValue&, Section&)> read;
    std::function<std::string(const Section&)> print;  // a TOML value; empty: leave the key out
};

// What [pod] sets directly.
const std::vector<Key<PodConfig>>& pod_keys();
const std::vector<Key<PodConfig>>& station_keys();
const std::vector<Key<PodConfig>>& placement_keys();
const std::vector<Key<PodConfig>>& exchange_keys();
const std::vector<Key<PodConfig>>& staging_keys();
const std::vector<Key<ExpertConfig>>& expert_keys();
// Of [station.hbm] and [station.host].
const std::vector<Key<MemoryConfig>>& tier_keys();

}  // namespace k3pod
