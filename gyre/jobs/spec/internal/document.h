#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/spec/parse.h"

namespace gyre::jobs::spec {

struct Member;

/// A value of JSON or YAML, and where it stood.
struct Value {
  enum class Kind { kNull, kBoolean, kNumber, kText, kList, kObject };

  Kind kind = Kind::kNull;
  std::string text;    ///< Of a scalar, as the file has it: "2", "true", the characters of a string.
  bool plain = false;  ///< YAML without quotes: `kind` is what it looks like, and `text` may be what is meant.
  int line = 0;
  std::vector<Value> items;     ///< Of a list.
  std::vector<Member> members;  ///< Of an object; names are unique.
};

struct Member {
  std::string name;
  int line = 0;
  Value value;
};

/// "a list", "text", …, for messages.
std::string_view kind_name(Value::Kind kind);

/// Why a text is not JSON or YAML, or is more than we read.
struct DocumentError {
  int line = 0;
  std::string message;
};

/// The value that `text` is; names given twice are added to `problems`. Throws DocumentError.
Value parse_document(std::string_view text, Format format, std::vector<Problem>& problems);

/// A name as one step of a JSON pointer: "~" is "~0", "/" is "~1". Long names are cut.
std::string pointer_step(std::string_view name);

}  // namespace gyre::jobs::spec
