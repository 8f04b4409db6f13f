#pragma once
// Which format config.json claims for a module. Names in its lists come plain, with several model
// prefixes, as wildcards or as regular expressions; here they all become one kind of pattern.

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/weights/model_config.h"

namespace k3pod {

// One entry of an exclusion or target list, ready to be matched against module names.
class ModulePattern {
  public:
    // kInvalidArgument names the entry and the place when a "re:" entry is not a regular
    // expression.
    static Result<ModulePattern> compile(const std::string& entry);

    ModulePattern(ModulePattern&&) noexcept;
    ModulePattern& operator=(ModulePattern&&) noexcept;
    ~ModulePattern();

    // `module` is the full name, "language_model.model.layers.3.self_attn.q_proj". kInvalidArgument
    // when an expression is too costly to match. Not thread-safe.
    Result<bool> matches(std::string_view module) const;

  private:
    struct Regex;
    explicit ModulePattern(std::unique_ptr<Regex> regex);
    std::unique_ptr<Regex> regex_;
};

// Borrows nothing; not thread-safe.
class ModuleFormats {
  public:
    static Result<ModuleFormats> compile(const QuantizationConfig& config);

    // kBf16 when config.json does not call the module quantised.
    Result<WeightFormat> claimed(std::string_view module) const;

  private:
    WeightFormat listed_format(std::string_view module) const;

    QuantMethod method_ = QuantMethod::kNone;
    std::unordered_map<std::string, WeightFormat> modules_;  // Names without model prefix.
    bool targets_all_ = false;
    std::vector<ModulePattern> targets_;
    std::vector<ModulePattern> ignore_;
};

}  // namespace k3pod
