#include "k3pod/config/predict_constants.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>

#include "default_constants.h"
#include "k3pod/base/file.h"
#include "k3pod/base/text.h"
#include "values.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

// Each with a base unit of factor 1, in which every figure can be printed exactly.
constexpr std::array<Unit, 4> kSeconds{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
constexpr std::array<Unit, 4> kBytesPerSecond{
    {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"B/s", 1}}};
constexpr std::array<Unit, 4> kBitsPerSecond{
    {{"Tb/s", 1e12}, {"Gb/s", 1e9}, {"Mb/s", 1e6}, {"b/s", 1}}};
constexpr std::array<Unit, 4> kFlops{
    {{"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"FLOP/s", 1}}};
constexpr std::array<Unit, 2> kShares{{{"", 1}, {"%", 0.01}}};

struct Entry {
    const char* section;
    const char* key;
    std::span<const Unit> units;
    bool may_be_zero;
    Constant PredictConstants::*field;
};

using C = PredictConstants;
constexpr bool kMayBeZero = true;

// In the order of the file.
constexpr Entry kEntries[] = {
    {"station", "kda_attention", kSeconds, kMayBeZero, &C::kda_attention},
    {"station", "mla_attention", kSeconds, kMayBeZero, &C::mla_attention},
    {"station", "moe_front", kSeconds, kMayBeZero, &C::moe_front},
    {"station", "shared_experts", kSeconds, kMayBeZero, &C::shared_experts},
    {"station", "moe_tail", kSeconds, kMayBeZero, &C::moe_tail},
    {"station", "dense_mlp", kSeconds, kMayBeZero, &C::dense_mlp},
    {"station", "head", kSeconds, kMayBeZero, &C::head},
    {"station", "kda_sequence", kSeconds, kMayBeZero, &C::kda_sequence},
    {"station", "kda_row", kSeconds, kMayBeZero, &C::kda_row},
    {"station", "mla_cached_token", kSeconds, kMayBeZero, &C::mla_cached_token},
    {"station", "draft", kSeconds, kMayBeZero, &C::draft},
    {"station", "compute", kFlops, !kMayBeZero, &C::compute},
    {"station", "hbm_bandwidth", kBytesPerSecond, !kMayBeZero, &C::hbm_bandwidth},
    {"station", "host_bandwidth", kBytesPerSecond, !kMayBeZero, &C::host_bandwidth},
    {"server", "bandwidth", kBytesPerSecond, !kMayBeZero, &C::server_bandwidth},
    {"server", "compute", kFlops, !kMayBeZero, &C::server_compute},
    {"exchange", "round_trip", kSeconds, kMayBeZero, &C::round_trip},
    {"exchange", "server_link", kBitsPerSecond, !kMayBeZero, &C::server_link},
    {"exchange", "station_link", kBitsPerSecond, !kMayBeZero, &C::station_link},
    {"routing", "pick_reuse", kShares, kMayBeZero, &C::pick_reuse},
};

// Outside of these nothing is a figure of a machine; sums and products of them stay finite.
struct Limits {
    double low, high;
};
Limits limits_of(std::span<const Unit> units) {
    if (units.data() == kSeconds.data()) return {0.001 * 1e-9, 60};
    return units.data() == kShares.data() ? Limits{1e-6, 1} : Limits{1, 1e18};
}

std::string spell_units(std::span<const Unit> units) {
    std::string all;
    for (const Unit& unit : units) {
        if (!unit.name.empty()) all += fmt::format("{}{}", all.empty() ? "" : ", ", unit.name);
    }
    return all;
}

std::optional<std::string> spell_exactly(double value, std::span<const Unit> units,
                                         const Unit& unit, int digits) {
    const std::string text = fmt::format("{:.{}g} {}", value / unit.factor, digits, unit.name);
    if (parse_quantity(text, units) == value) return text;
    return {};
}

// With the unit that leaves the smallest number of at least 1, else another one, in as few digits
// as read back the same.
std::string spell(double value, std::span<const Unit> units) {
    const Unit* best = &units.back();
    const Unit* base = best;
    for (const Unit& unit : units) {
        if (unit.factor == 1) base = &unit;
        const bool is_closer = best->factor > value || unit.factor > best->factor;
        if (unit.factor <= value && !unit.name.empty() && is_closer) best = &unit;
    }
    for (const int digits : {6, 17}) {
        if (auto text = spell_exactly(value, units, *best, digits)) return *text;
        for (const Unit& unit : units) {
            if (unit.name.empty()) continue;
            if (auto text = spell_exactly(value, units, unit, digits)) return *text;
        }
    }
    char digits[64];  // no exponent, which nobody would read
    const auto [end, error] =
        std::to_chars(digits, std::end(digits), value, std::chars_format::fixed);
    const std::string_view text(digits, end);
    return fmt::format("{}{}{}", text, base->name.empty() ? "" : " ", base->name);
}

class Reader {
  public:
    Reader(const fs::path& file, const toml::table& root) : file_(file), root_(root) {}

    Result<PredictConstants> read() const {
        K3POD_TRY(refuse_unknown());
        PredictConstants constants;
        for (const Entry& entry : kEntries) {
            K3POD_ASSIGN(constants.*entry.field, read_entry(entry));
        }
        return constants;
    }

  private:
    Status refuse(const toml::node& node, const std::string& what) const {
        return invalid_argument(
            fmt::format("{}:{}: {}", file_.string(), node.source().begin.line, what));
    }

    Status refuse_unknown() const {
        for (const auto& [name, node] : root_) {
            const std::string section(name.str());
            const toml::table* table = node.as_table();
            if (table == nullptr || keys_of(section).empty()) {
                return refuse(node, fmt::format("unknown section '{}'; there are [station], "
                                                "[server], [exchange] and [routing]",
                                                section));
            }
            for (const auto& [key, value] : *table) {
                K3POD_TRY(refuse_unknown_key(section, std::string(key.str()), value));
            }
        }
        return Status::ok();
    }

    Status refuse_unknown_key(const std::string& section, const std::string& key,
                              const toml::node& value) const {
        const std::vector<std::string> known = keys_of(section);
        if (std::find(known.begin(), known.end(), key) != known.end()) return Status::ok();
        const std::string near = nearest(key, known);
        return refuse(value, fmt::format("unknown constant '{}' in [{}]; {}", key, section,
                                         near.empty() ? "configs/constants-k3-pod.toml has them all"
                                                      : fmt::format("did you mean '{}'?", near)));
    }

    static std::vector<std::string> keys_of(const std::string& section) {
        std::vector<std::string> keys;
        for (const Entry& entry : kEntries) {
            if (entry.section == section) keys.emplace_back(entry.key);
        }
        return keys;
    }

    Result<Constant> read_entry(const Entry& entry) const {
        const auto node = root_[entry.section][entry.key];
        if (!node) {
            return invalid_argument(
                fmt::format("{}: [{}] lacks '{}'; every constant is needed, "
                            "configs/constants-k3-pod.toml has them all",
                            file_.string(), entry.section, entry.key));
        }
        const toml::table* table = node.as_table();
        const toml::value<std::string>* value =
            table ? table->get_as<std::string>("value") : nullptr;
        const auto* source = table ? table->get_as<std::string>("source") : nullptr;
        if (value == nullptr || source == nullptr || source->get().empty() || table->size() != 2) {
            return refuse(*node.node(),
                          fmt::format("[{}] {} is written as {{ value = \"...\", source = \"where "
                                      "it comes from\" }}",
                                      entry.section, entry.key));
        }
        const auto number = parse_quantity(value->get(), entry.units);
        const auto [low, high] = limits_of(entry.units);
        const bool is_zero = number && *number == 0 && entry.may_be_zero;
        if (!is_zero && !(number && *number >= low && *number <= high)) {
            return refuse(
                *value, fmt::format("[{}] {}: '{}' is not a number from {} to {}{} with one of {}",
                                    entry.section, entry.key, shortened(value->get()),
                                    spell(low, entry.units), spell(high, entry.units),
                                    entry.may_be_zero ? ", or 0," : "", spell_units(entry.units)));
        }
        return Constant{*number, source->get()};
    }

    const fs::path& file_;
    const toml::table& root_;
};

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            out += fmt::format("\\u{:04x}", c);
            continue;
        }
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

}  // namespace

Result<PredictConstants> parse_predict_constants(std::string_view text, const fs::path& file) {
    const toml::parse_result parsed = toml::parse(text, file.string());
    if (!parsed) {
        const auto& error = parsed.error();
        return invalid_argument(fmt::format("{}:{}: column {}: {}", file.string(),
                                            error.source().begin.line, error.source().begin.column,
                                            error.description()));
    }
    return Reader(file, parsed.table()).read();
}

Result<PredictConstants> read_predict_constants(const fs::path& file) {
    K3POD_ASSIGN(const std::string text, read_text_file(file));
    return parse_predict_constants(text, file);
}

const PredictConstants& default_predict_constants() {
    static const PredictConstants kDefaults =
        parse_predict_constants(kDefaultConstantsText, "configs/constants-k3-pod.toml").value();
    return kDefaults;
}

std::vector<ConstantLine> list_constants(const PredictConstants& constants) {
    std::vector<ConstantLine> lines;
    for (const Entry& entry : kEntries) {
        const Constant& constant = constants.*entry.field;
        lines.push_back(
            {entry.section, entry.key, spell(constant.value, entry.units), constant.source});
    }
    return lines;
}

std::string to_toml(const PredictConstants& constants) {
    std::string out, section;
    for (const ConstantLine& line : list_constants(constants)) {
        if (line.section != section) {
            out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", line.section);
            section = line.section;
        }
        out += fmt::format("{} = {{ value = {}, source = {} }}\n", line.key, quoted(line.value),
                           quoted(line.source));
    }
    return out;
}

}  // namespace k3pod
