#include "module_formats.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <cctype>

namespace k3pod {
namespace {

constexpr std::string_view kRegexMark = "re:";

// "layers.3.self_attn.q_proj" of "language_model.model.layers.3.self_attn.q_proj".
std::string_view without_model_prefix(std::string_view name) {
    for (;;) {
        const std::string_view before = name;
        for (const std::string_view prefix : {"language_model.", "model."}) {
            if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
        }
        if (name == before) return name;
    }
}

std::string quoted(char c) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    return is_word ? std::string(1, c) : std::string("\\") + c;
}

// The regular expression that an entry stands for; matched from the start of a name.
std::string regex_of(std::string_view entry) {
    if (entry.starts_with(kRegexMark)) return std::string(entry.substr(kRegexMark.size()));
    entry = without_model_prefix(entry);
    const bool is_wildcard = entry.find_first_of("*?") != std::string_view::npos;
    std::string regex;
    for (const char c : entry) {
        if (c == '*') {
            regex += ".*";
        } else {
            regex += c == '?' ? "." : quoted(c);
        }
    }
    // A plain entry names a module or one of its parents: a run of whole dotted parts.
    return is_wildcard ? regex + "$" : fmt::format("(?:.*\\.)?{}(?:\\..*)?$", regex);
}

struct FreePcre {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

Result<bool> is_listed(const std::vector<ModulePattern>& list, std::string_view module) {
    for (const ModulePattern& pattern : list) {
        K3POD_ASSIGN(const bool is_match, pattern.matches(module));
        if (is_match) return true;
    }
    return false;
}

}  // namespace

struct ModulePattern::Regex {
    std::string entry;
    std::unique_ptr<pcre2_code, FreePcre> code;
    std::unique_ptr<pcre2_match_data, FreePcre> match;
    std::unique_ptr<pcre2_match_context, FreePcre> limits;

    Result<bool> matches(std::string_view text) const {
        const int rc = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), 0, 0, match.get(), limits.get());
        if (rc >= 0) return true;
        if (rc == PCRE2_ERROR_NOMATCH) return false;
        return invalid_argument(
            fmt::format("entry \"{}\" takes too long to match \"{}\": simplify it", entry, text));
    }
};

ModulePattern::ModulePattern(std::unique_ptr<Regex> regex) : regex_(std::move(regex)) {}
ModulePattern::ModulePattern(ModulePattern&&) noexcept = default;
ModulePattern& ModulePattern::operator=(ModulePattern&&) noexcept = default;
ModulePattern::~ModulePattern() = default;

Result<ModulePattern> ModulePattern::compile(const std::string& entry) {
    const std::string text = regex_of(entry);
    int error = 0;
    size_t offset = 0;
    auto regex = std::make_unique<Regex>();
    regex->entry = entry;
    regex->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    PCRE2_ANCHORED, &error, &offset, nullptr));
    if (!regex->code) {
        PCRE2_UCHAR reason[128] = {};
        pcre2_get_error_message(error, reason, sizeof(reason));
        return invalid_argument(fmt::format("entry \"{}\" is not a regular expression: {} at {}",
                                            entry, reinterpret_cast<const char*>(reason), offset));
    }
    // Without the compiler (a hardened kernel) matching is only slower.
    (void)pcre2_jit_compile(regex->code.get(), PCRE2_JIT_COMPLETE);
    regex->match.reset(pcre2_match_data_create_from_pattern(regex->code.get(), nullptr));
    regex->limits.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(regex->limits.get(), 100'000);
    return ModulePattern(std::move(regex));
}

Result<bool> ModulePattern::matches(std::string_view module) const {
    constexpr std::string_view kWrapper = "language_model.";
    const std::string_view spellings[] = {
        without_model_prefix(module), module,
        module.substr(module.starts_with(kWrapper) ? kWrapper.size() : 0)};
    for (const std::string_view spelling : spellings) {
        K3POD_ASSIGN(const bool is_match, regex_->matches(spelling));
        if (is_match) return true;
    }
    return false;
}

Result<ModuleFormats> ModuleFormats::compile(const QuantizationConfig& config) {
    ModuleFormats formats;
    formats.method_ = config.method;
    for (const auto& [name, format] : config.modules) {
        const auto [at, is_new] = formats.modules_.emplace(without_model_prefix(name), format);
        if (!is_new && at->second != format) {
            return invalid_argument(fmt::format("module {} is listed as {} and as {}", name,
                                                weight_format_name(at->second),
                                                weight_format_name(format)));
        }
    }
    for (const std::string& entry : config.targets) {
        if (entry == "Linear") {
            formats.targets_all_ = true;
            continue;
        }
        K3POD_ASSIGN(ModulePattern pattern, ModulePattern::compile(entry));
        formats.targets_.push_back(std::move(pattern));
    }
    for (const std::string& entry : config.ignore) {
        K3POD_ASSIGN(ModulePattern pattern, ModulePattern::compile(entry));
        formats.ignore_.push_back(std::move(pattern));
    }
    return formats;
}

Result<WeightFormat> ModuleFormats::claimed(std::string_view module) const {
    WeightFormat format = WeightFormat::kBf16;
    switch (method_) {
        case QuantMethod::kNone:
            break;
        case QuantMethod::kCompressedTensors: {
            K3POD_ASSIGN(const bool is_target, is_listed(targets_, module));
            if (targets_all_ || is_target) format = WeightFormat::kMxfp4;
            break;
        }
        case QuantMethod::kModeloptMixed:
            format = listed_format(module);
            break;
    }
    if (format == WeightFormat::kBf16) return format;
    K3POD_ASSIGN(const bool is_ignored, is_listed(ignore_, module));
    return is_ignored ? WeightFormat::kBf16 : format;
}

WeightFormat ModuleFormats::listed_format(std::string_view module) const {
    // The module itself or the nearest parent that the map names ("...block_sparse_moe.experts").
    std::string name(without_model_prefix(module));
    for (;;) {
        if (const auto at = modules_.find(name); at != modules_.end()) return at->second;
        const size_t dot = name.rfind('.');
        if (dot == std::string::npos) return WeightFormat::kBf16;
        name.resize(dot);
    }
}

}  // namespace k3pod
