#pragma once
// Tool declarations: those of a request and those that a system message adds later on.

#include <set>
#include <string>
#include <string_view>

#include "k3pod/base/status.h"

namespace k3pod {

// Keeps the names, so that a later declaration cannot redefine a tool. Refusals name the tool by
// its position ("tools[2]: ...").
class DeclaredTools {
  public:
    // The request's tools: objects whose function has a name. Gives their canonical text.
    Result<std::string> declare(std::string_view tools_json);
    // A system message's tools, to which the format's stricter rules apply: type "function"; a name
    // of at most 256 letters, digits, underscores and hyphens that starts with a letter or an
    // underscore and that no other tool has.
    Result<std::string> declare_dynamic(std::string_view tools_json);

  private:
    std::set<std::string, std::less<>> names_;
};

}  // namespace k3pod
