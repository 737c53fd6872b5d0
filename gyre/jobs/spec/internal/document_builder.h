#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gyre/jobs/spec/internal/document.h"

namespace gyre::jobs::spec {

/// Makes one Value out of what a parser of JSON or YAML meets, within the limits of parse.h. Every function throws
/// DocumentError where a limit is passed.
class DocumentBuilder {
 public:
  explicit DocumentBuilder(std::vector<Problem>& problems) : problems_(problems) {}

  void scalar(Value::Kind kind, std::string text, bool plain, int line);
  void start(Value::Kind kind, int line);
  void key(std::string name, int line);
  /// The list or object that was started last is complete. `anchor`: its number in YAML, 0 for none.
  void end();

  /// Whether the next scalar is an object's key.
  bool expects_key() const;
  /// The next value's copies are asked for with repeat(); 0 for none.
  void anchor_next(std::size_t anchor) { next_anchor_ = anchor; }
  /// A copy of the value with that anchor.
  void repeat(std::size_t anchor, int line);

  [[noreturn]] void fail(int line, std::string message) const;

  Value take_root() { return std::move(root_); }

 private:
  /// A list or object that is not complete.
  struct Open {
    Value value;
    std::size_t anchor = 0;
    std::set<std::string> names;
    bool has_key = false;
  };

  void add(Value value, std::size_t anchor);
  void count(const Value& value);
  void count_one(std::size_t text_bytes, int line);
  /// Of the list or object that is open.
  std::string pointer() const;

  std::vector<Problem>& problems_;
  std::vector<Open> open_;
  Value root_;
  std::size_t next_anchor_ = 0;
  std::map<std::size_t, Value> anchored_;
  std::size_t values_ = 0;
  std::size_t text_bytes_ = 0;
};

/// Feed `builder` with everything in `text`.
void read_json(std::string_view text, DocumentBuilder& builder);
void read_yaml(std::string_view text, DocumentBuilder& builder);

}  // namespace gyre::jobs::spec
