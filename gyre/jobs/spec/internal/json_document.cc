// JSON through nlohmann's event parser, which is not recursive, with the lines that it does not report.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gyre/jobs/spec/internal/document_builder.h"

namespace gyre::jobs::spec {

namespace {

struct Position {
  int line = 1;
  int line_before = 1;  ///< Before the character that was read last.
};

/// Counts lines as the parser reads on.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Position& position) : at_(at), position_(&position) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    position_->line_before = position_->line;
    if (*at_++ == '\n') ++position_->line;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

/// What is wrong, without what was read: that may be a secret.
std::string reason(const std::string& message) {
  const std::size_t expected = message.rfind("; expected ");
  const std::size_t column = message.find("column ");
  const std::string place =
      column == std::string::npos ? "" : fmt::format(" at column {}", std::atoi(message.c_str() + column + 7));
  return fmt::format("the file is not valid JSON{}{}", place,
                     expected == std::string::npos ? "" : ": " + message.substr(expected + 2));
}

/// The interface that nlohmann::json::sax_parse() calls.
class JsonEvents {
 public:
  JsonEvents(DocumentBuilder& builder, const Position& position) : builder_(builder), position_(position) {}

  bool null() { return scalar(Value::Kind::kNull, "null", position_.line); }
  bool boolean(bool value) { return scalar(Value::Kind::kBoolean, value ? "true" : "false", position_.line); }
  bool number_integer(std::int64_t value) { return number(fmt::to_string(value)); }
  bool number_unsigned(std::uint64_t value) { return number(fmt::to_string(value)); }
  bool number_float(double, const std::string& text) { return number(text); }
  bool string(std::string& text) { return scalar(Value::Kind::kText, std::move(text), position_.line); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) { return start(Value::Kind::kObject); }
  bool start_array(std::size_t) { return start(Value::Kind::kList); }
  bool key(std::string& name) {
    builder_.key(std::move(name), position_.line);
    return true;
  }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    builder_.fail(position_.line_before, reason(error.what()));
  }

 private:
  bool scalar(Value::Kind kind, std::string text, int line) {
    builder_.scalar(kind, std::move(text), false, line);
    return true;
  }
  /// A number ends where the next character is none of its own, which has been read by then.
  bool number(std::string text) { return scalar(Value::Kind::kNumber, std::move(text), position_.line_before); }
  bool start(Value::Kind kind) {
    builder_.start(kind, position_.line);
    return true;
  }
  bool end() {
    builder_.end();
    return true;
  }

  DocumentBuilder& builder_;
  const Position& position_;
};

}  // namespace

void read_json(std::string_view text, DocumentBuilder& builder) {
  Position position;
  JsonEvents events(builder, position);
  const char* const begin = std::to_address(text.begin());
  const char* const end = std::to_address(text.end());
  nlohmann::json::sax_parse(CountingIterator(begin, position), CountingIterator(end, position), &events);
}

}  // namespace gyre::jobs::spec
