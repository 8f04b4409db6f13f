#pragma once
// Reads the fields of one JSON object and keeps the first refusal, so that the reader of a whole
// file is a table of fields followed by one check.

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

// Every getter returns a harmless value once something was refused; `status` holds the reason, with
// the field's full name, what was found and what is expected. Borrows the parsed document and
// `status`.
class ConfigFields {
  public:
    // Inclusive. Values must be a multiple of `multiple`.
    struct IntegerRange {
        int64_t min = 0;
        int64_t max = 0;
        int64_t multiple = 1;
    };
    struct NumberRange {
        double min = 0;
        double max = 0;
    };

    // `path` is the dotted name of the object, empty for the whole file.
    ConfigFields(simdjson::dom::element object, std::string path, Status& status);

    // Present and not null.
    bool has(std::string_view key) const;

    int32_t integer(std::string_view key, IntegerRange range);
    float number(std::string_view key, NumberRange range);
    std::string_view text(std::string_view key);
    std::vector<std::string> texts(std::string_view key);
    std::vector<int32_t> integers(std::string_view key, IntegerRange range);
    ConfigFields object(std::string_view key);
    // The objects in an object of objects, in the file's order.
    struct Member;
    std::vector<Member> members(std::string_view key);

    void require_text(std::string_view key, std::string_view supported);
    void require_integer(std::string_view key, int64_t supported);
    void require_bool(std::string_view key, bool supported);
    void require_absent(std::string_view key);

    // Records a refusal of `key`: what the file says there, and what is expected.
    void refuse(std::string_view key, std::string_view expected);

  private:
    // An object that is missing; its path was refused.
    ConfigFields(std::string path, Status& status);

    const simdjson::dom::element* find(std::string_view key) const;
    std::string name_of(std::string_view key) const;
    // The element of `key`; refuses with `expected` and returns nullptr when it is missing.
    const simdjson::dom::element* require(std::string_view key, std::string_view expected);

    std::vector<simdjson::dom::element> list(std::string_view key, std::string_view expected);
    void refuse_item(std::string_view key, size_t item_idx, simdjson::dom::element item,
                     std::string_view expected);
    void record(std::string_view name, std::string_view found, std::string_view expected);

    struct Field {
        std::string_view key;
        simdjson::dom::element value;
    };
    std::vector<Field> fields_;  // Sorted by key.
    std::string path_;
    Status& status_;
};

struct ConfigFields::Member {
    std::string_view key;
    ConfigFields fields;
};

}  // namespace k3pod
