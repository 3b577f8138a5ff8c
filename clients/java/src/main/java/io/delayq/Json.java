package io.delayq;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as plain Java values: {@link Map}, {@link List}, {@link String}, {@link Long}, {@link BigDecimal}, {@link Boolean} and null.
 * It lets this client work without a JSON library. Bring your own for the bodies of messages: {@link Message#json(String)}.
 */
public final class Json {
    private static final int DEEPEST = 500;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** JSON text that is written as it is. Throws IllegalArgumentException if it is not JSON. */
    public record Raw(String text) {
        public Raw {
            read(text);
        }
    }

    /** The value of a JSON text. Throws IllegalArgumentException if it is not JSON. */
    public static Object read(String text) {
        var reader = new Json(text);
        var value = reader.value(0);
        if (reader.next() != 0) throw reader.wrong();
        return value;
    }

    /** The JSON text of a value. Maps, iterables, strings, numbers, booleans, null and {@link Raw} can be written. */
    public static String write(Object value) {
        var out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Raw raw) {
            out.append(raw.text());
        } else if (value instanceof Map<?, ?> map) {
            out.append('{');
            for (var entry : map.entrySet()) {
                if (out.charAt(out.length() - 1) != '{') out.append(',');
                quote(String.valueOf(entry.getKey()), out);
                write(entry.getValue(), out.append(':'));
            }
            out.append('}');
        } else if (value instanceof Iterable<?> items) {
            out.append('[');
            for (var item : items) {
                if (out.charAt(out.length() - 1) != '[') out.append(',');
                write(item, out);
            }
            out.append(']');
        } else if (value instanceof CharSequence || value instanceof Enum<?>) {
            quote(value.toString(), out);
        } else if (value == null || value instanceof Boolean || value instanceof Number number && isFinite(number)) {
            out.append(value);
        } else {
            throw new IllegalArgumentException("JSON cannot write " + value + " of " + value.getClass());
        }
    }

    private static boolean isFinite(Number number) {
        return !(number instanceof Double || number instanceof Float) || Double.isFinite(number.doubleValue());
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char one = text.charAt(at);
            if (one == '"' || one == '\\') out.append('\\').append(one);
            else if (one < ' ' || isLone(text, at)) out.append(String.format("\\u%04x", (int) one));
            else out.append(one);
        }
        out.append('"');
    }

    /** Whether a half of a surrogate pair has no other half. As UTF-8 it would silently become a question mark; the API refuses it. */
    private static boolean isLone(String text, int at) {
        char one = text.charAt(at);
        if (Character.isHighSurrogate(one)) return at + 1 == text.length() || !Character.isLowSurrogate(text.charAt(at + 1));
        return Character.isLowSurrogate(one) && (at == 0 || !Character.isHighSurrogate(text.charAt(at - 1)));
    }

    private Object value(int depth) {
        if (depth > DEEPEST) throw wrong();
        char first = next();
        return switch (first) {
            case '{' -> map(depth);
            case '[' -> list(depth);
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> map(int depth) {
        var map = new LinkedHashMap<String, Object>();
        at++;
        if (next() == '}') {
            at++;
            return map;
        }
        while (true) {
            if (next() != '"') throw wrong();
            var name = string();
            take(':');
            map.put(name, value(depth + 1));
            if (next() == '}') break;
            take(',');
        }
        at++;
        return map;
    }

    private List<Object> list(int depth) {
        var list = new ArrayList<>();
        at++;
        if (next() == ']') {
            at++;
            return list;
        }
        while (true) {
            list.add(value(depth + 1));
            if (next() == ']') break;
            take(',');
        }
        at++;
        return list;
    }

    private String string() {
        var out = new StringBuilder();
        for (at++; at < text.length(); at++) {
            char one = text.charAt(at);
            if (one == '"') {
                at++;
                return out.toString();
            }
            if (one < ' ') throw wrong();
            out.append(one == '\\' ? escaped() : one);
        }
        throw wrong();
    }

    private char escaped() {
        if (++at >= text.length()) throw wrong();
        char one = text.charAt(at);
        switch (one) {
            case '"', '\\', '/': return one;
            case 'b': return '\b';
            case 'f': return '\f';
            case 'n': return '\n';
            case 'r': return '\r';
            case 't': return '\t';
            case 'u':
                if (at + 4 >= text.length()) throw wrong();
                at += 4;
                try {
                    return (char) Integer.parseInt(text, at - 3, at + 1, 16);
                } catch (NumberFormatException error) {
                    throw wrong();
                }
            default: throw wrong();
        }
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) throw wrong();
        at += word.length();
        return value;
    }

    private Number number() {
        int from = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) at++;
        var digits = text.substring(from, at);
        if (!digits.matches("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d{1,9})?")) throw wrong();
        try {
            return digits.matches("-?\\d{1,18}") ? (Number) Long.valueOf(digits) : new BigDecimal(digits);
        } catch (ArithmeticException | NumberFormatException error) {
            throw wrong();
        }
    }

    private void take(char wanted) {
        if (next() != wanted) throw wrong();
        at++;
    }

    /** The next character that is no white space; 0 at the end. */
    private char next() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
        return at < text.length() ? text.charAt(at) : 0;
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("This is not JSON, at character " + at + ".");
    }
}
