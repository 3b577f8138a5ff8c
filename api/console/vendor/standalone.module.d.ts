// What the console takes of Preact, its hooks and htm. Markup of htm is not typed.
export type Node = any;
export function html(parts: TemplateStringsArray, ...values: any[]): Node;
export function h(type: any, props: any, ...children: any[]): Node;
export function render(node: Node, parent: Element): void;
export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(run: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(run: () => void | (() => void), inputs?: unknown[]): void;
export function useRef<T>(first: T): { current: T };
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useCallback<T>(made: T, inputs: unknown[]): T;
export function useErrorBoundary(told?: (error: any) => void): [any, () => void];
