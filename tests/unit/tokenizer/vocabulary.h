#pragma once
// Small vocabularies on disk, good and bad ones.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace k3pod::testing {

// A model folder with tiktoken.model and tokenizer_config.json, removed with the object.
class VocabularyDir {
  public:
    VocabularyDir();
    ~VocabularyDir();
    VocabularyDir(const VocabularyDir&) = delete;
    VocabularyDir& operator=(const VocabularyDir&) = delete;

    const std::filesystem::path& path() const { return dir_; }
    void write(std::string_view file_name, std::string_view text) const;
    void remove(std::string_view file_name) const;

  private:
    std::filesystem::path dir_;
};

std::string base64(std::string_view bytes);

// The text of tiktoken.model: the 256 single bytes in order, then `merged`.
std::string rank_file(const std::vector<std::string>& merged = {});

// Names of control ids by their distance from the first one. K3's are
// {0: [BOS], 1: [EOS], 2: <|end_of_msg|>, 3: <|open|>, 4: <|close|>, 5: <|sep|>}.
using ControlNames = std::map<int32_t, std::string>;
ControlNames k3_control_names();
// The text of tokenizer_config.json.
std::string control_file(int32_t first_id, const ControlNames& names);

}  // namespace k3pod::testing
