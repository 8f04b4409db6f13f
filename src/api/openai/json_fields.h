#pragma once
// Typed reading of a request's JSON. Values stay text until they are asked for, so a body takes no
// more memory than its bytes, and tools, schemas and number literals are at hand as the client
// wrote them. The first thing that is wrong refuses the request; reading on gives defaults.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/chat/json_text.h"
#include "api/error_body.h"

namespace k3pod {

class Refusal {
  public:
    // Kept if it is the first.
    void refuse(ApiError error) {
        if (!error_) error_ = std::move(error);
    }
    bool is_refused() const { return error_.has_value(); }
    const ApiError& error() const { return *error_; }

  private:
    std::optional<ApiError> error_;
};

struct NumberRange {
    double min = 0, max = 0;
    bool is_min_excluded = false;
};

// A value with its name for messages: "messages[2].content". Borrows the source and the refusal.
class JsonValue {
  public:
    JsonValue(std::string_view source, std::string path, Refusal& refusal)
        : source_(source), path_(std::move(path)), refusal_(&refusal) {}

    std::string_view source() const { return source_; }
    const std::string& path() const { return path_; }
    Refusal& refusal() const { return *refusal_; }
    JsonKind kind() const;

    // Each refuses what is not of its type or range, and then gives an empty or lowest value.
    bool boolean() const;
    int64_t integer(int64_t min, int64_t max) const;  // 2.0 and 1e3 are integers, too
    float number(const NumberRange& range) const;
    std::string text() const;
    std::vector<int32_t> ids(int32_t vocab) const;  // an array of token ids in [0, vocab)
    // Calls `visit` with each item of an array until the request is refused; gives their number.
    size_t items(const std::function<void(const JsonValue&)>& visit) const;

    // "PATH: expected WHAT, found SOURCE".
    void refuse_unless(bool is_right, std::string_view expected) const;
    void refuse(std::string_view what) const;  // "PATH: WHAT"

  private:
    std::string_view source_;
    std::string path_;
    Refusal* refusal_;
};

// The members of an object; of equal names the last counts. A member that is null counts as absent.
class JsonFields {
  public:
    // Refuses what is not an object.
    explicit JsonFields(const JsonValue& object);
    // The body of a request: checks that it is UTF-8 and JSON to its end.
    JsonFields(std::string_view body, Refusal& refusal);

    std::optional<JsonValue> find(std::string_view name) const;
    bool has(std::string_view name) const { return find(name).has_value(); }
    bool is_null(std::string_view name) const;  // present, and null

    bool boolean(std::string_view name, bool fallback) const;
    int64_t integer(std::string_view name, int64_t fallback, int64_t min, int64_t max) const;
    float number(std::string_view name, float fallback, const NumberRange& range) const;
    std::string text(std::string_view name) const;  // empty when absent
    // Refuses the request when the member is absent.
    std::optional<JsonValue> required(std::string_view name) const;
    // Refuses the request when the member is there, for `reason`.
    void refuse_if_present(std::string_view name, std::string_view reason) const;

    void for_each(
        const std::function<void(const std::string& name, const JsonValue&)>& visit) const;

  private:
    void read(std::string_view source);
    std::string path_of(std::string_view name) const;

    std::string path_;
    Refusal* refusal_;
    std::vector<std::pair<std::string, std::string_view>> members_;
};

}  // namespace k3pod
