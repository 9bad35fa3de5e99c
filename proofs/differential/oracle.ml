(* Reads runs of the Rust ledger (examples/differential.rs) and judges them by the slot-level specification.

   Its own state is what that specification talks about: for every slot, the token sequence whose last KV cell it holds.
   For each call it works out from that state what the ledger should answer, and:
   - an accepted step must launch exactly the rows expected, pass the extracted [accepts], and leave no claim that the
     extracted [granted] does not grant;
   - a refusal must have a reason. The one reason that slots do not show, equal content with another chain id, is read
     off the order in which pages filled, and counted. *)

open Spec

type req = { mutable live : bool; mutable sure : int; mutable toks : int list; mutable table : int list }

type state = {
  psize : int;
  npages : int;
  mutable claims : int list option array; (* per slot *)
  mutable parent : int array; (* per page: the name of the content before it *)
  mutable name : int array; (* per page: the name of its content, once full *)
  mutable next : int; (* the next name *)
  mutable reqs : req array }

let fail line fmt = Printf.ksprintf (fun s -> Printf.printf "line %d: %s\n" line s; exit 1) fmt
let rec take n = function x :: l when n > 0 -> x :: take (n - 1) l | _ -> []
let copy s =
  { s with claims = Array.copy s.claims; parent = Array.copy s.parent; name = Array.copy s.name;
    reqs = Array.map (fun r -> { r with live = r.live }) s.reqs }

let filled s p =
  let rec go i = if i < s.psize && s.claims.((p * s.psize) + i) <> None then go (i + 1) else i in
  go 0
let full s p = filled s p = s.psize
let kv s r = match List.rev r.table with [] -> 0 | p :: rest -> (List.length rest * s.psize) + filled s p
let aligned s r = kv s r = List.length r.table * s.psize
let tail s r = match List.rev r.table with [] -> 0 | p :: _ -> s.name.(p)
let pinned s p = Array.exists (fun r -> List.mem p r.table) s.reqs
let slot s r i = (List.nth r.table (i / s.psize) * s.psize) + (i mod s.psize)
let req s r = if r >= 0 && r < Array.length s.reqs then Some s.reqs.(r) else None
let page s p = p >= 0 && p < s.npages
let other_chain = ref 0

(* One operation on [s]: the rows it launches, or None when there is a reason to refuse it. *)
let operate s = function
  | [ "a"; r; p ] -> (
      let p = int_of_string p in
      match req s (int_of_string r) with
      | Some r when page s p && r.live && aligned s r && full s p ->
          let k = List.length r.table * s.psize in
          let holds i = s.claims.((p * s.psize) + i) = Some (take (k + i + 1) r.toks) && List.length r.toks > k + i in
          if not (List.for_all holds (List.init s.psize Fun.id)) then None
          else if k + s.psize >= r.sure then None (* the last certain token is computed, for its row gives the next *)
          else if s.parent.(p) <> tail s r then (incr other_chain; None)
          else (r.table <- r.table @ [ p ]; Some [])
      | _ -> None)
  | [ "g"; r; p ] -> (
      let p = int_of_string p in
      match req s (int_of_string r) with
      | Some r when page s p && r.live && aligned s r && not (pinned s p) ->
          s.parent.(p) <- tail s r;
          for i = 0 to s.psize - 1 do s.claims.((p * s.psize) + i) <- None done;
          r.table <- r.table @ [ p ];
          Some []
      | _ -> None)
  | [ "f"; r; n ] -> (
      let ri = int_of_string r in
      match req s ri with
      | None -> if int_of_string n = 0 then Some [] else None
      | Some r ->
          let rec go n rows =
            if n = 0 then Some (List.rev rows)
            else
              let k = kv s r in
              if (not r.live) || k >= List.length r.toks || k >= List.length r.table * s.psize then None
              else begin
                let w = slot s r k in
                let row =
                  { r_req = ri; r_ctx = take k r.toks; r_tok = List.nth r.toks k;
                    r_reads = List.init k (slot s r); r_write = w; r_samp = k + 1 >= r.sure } in
                s.claims.(w) <- Some (take (k + 1) r.toks);
                if (w + 1) mod s.psize = 0 then (s.name.(w / s.psize) <- s.next; s.next <- s.next + 1);
                go (n - 1) (row :: rows)
              end in
          go (int_of_string n) [])
  | [ "d"; p; q ] ->
      let p = int_of_string p and q = int_of_string q in
      if not (page s p && page s q && full s p && full s q) then None
      else
        let last x = s.claims.((x * s.psize) + s.psize - 1) in
        if last p <> last q then None
        else if s.parent.(p) <> s.parent.(q) then (incr other_chain; None)
        else (s.name.(p) <- s.name.(q); Some [])
  | other -> failwith ("operation " ^ String.concat " " other)

(* Drop guesses: the slots behind position [n] are claimed no longer; nobody else may read them by position. *)
let truncate s r n =
  let whole = n / s.psize and rest = n mod s.psize in
  let holders p = Array.fold_left (fun k r -> if List.mem p r.table then k + 1 else k) 0 s.reqs in
  let cut = if rest > 0 then List.nth_opt r.table whole else None in
  match cut with
  | Some p when filled s p > rest && holders p > 1 -> false
  | _ ->
      Option.iter (fun p -> for i = rest to s.psize - 1 do s.claims.((p * s.psize) + i) <- None done) cut;
      r.table <- take (if rest > 0 then whole + 1 else whole) r.table;
      r.toks <- take n r.toks;
      true

let reset s =
  Array.fill s.claims 0 (Array.length s.claims) None;
  Array.fill s.parent 0 s.npages 0;
  Array.iter (fun r -> r.table <- []) s.reqs

let words s = List.filter (( <> ) "") (String.split_on_char ' ' s)
let ints l = List.map int_of_string l

let () =
  let sequences = ref 0 and steps = ref 0 and refused = ref 0 and rows_seen = ref 0 and truncated = ref 0 and line = ref 0 in
  let s = ref { psize = 1; npages = 0; claims = [||]; parent = [||]; name = [||]; next = 1; reqs = [||] } in
  let input () = incr line; input_line stdin in
  let agree what expected got = if expected <> got then fail !line "%s: the ledger says %b, the specification %b" what got expected in
  let said b = b = "1" in
  (try
     while true do
       match words (input ()) with
       | [ "new"; p; n ] ->
           incr sequences;
           let p = int_of_string p and n = int_of_string n in
           s := { psize = p; npages = n; claims = Array.make (p * n) None; parent = Array.make n 0; name = Array.make n 0;
                  next = 1; reqs = [||] }
       | "admit" :: r :: toks ->
           if int_of_string r <> Array.length !s.reqs then fail !line "admit gave entry %s" r;
           !s.reqs <- Array.append !s.reqs [| { live = true; sure = List.length toks; toks = ints toks; table = [] } |]
       | "readmit" :: ok :: r :: toks ->
           let r = int_of_string r in
           let expected = match req !s r with Some q -> not q.live | None -> false in
           agree "readmit" expected (said ok);
           if expected then !s.reqs.(r) <- { live = true; sure = List.length toks; toks = ints toks; table = [] }
       | [ "commit"; ok; r; n; t ] ->
           let q = req !s (int_of_string r) and n = int_of_string n and t = int_of_string t in
           let expected = match q with
             | Some q -> q.live && n = q.sure && kv !s q >= n && (match List.nth_opt q.toks n with Some g -> g = t | None -> true)
             | None -> false in
           agree "commit" expected (said ok);
           if expected then Option.iter (fun q -> q.toks <- (if List.length q.toks = n then q.toks @ [ t ] else q.toks); q.sure <- n + 1) q
       | [ "draft"; ok; r; t ] ->
           let q = req !s (int_of_string r) in
           let expected = match q with Some q -> q.live | None -> false in
           agree "draft" expected (said ok);
           if expected then Option.iter (fun q -> q.toks <- q.toks @ [ int_of_string t ]) q
       | [ "truncate"; ok; r; n ] ->
           let n = int_of_string n in
           let expected = match req !s (int_of_string r) with
             | Some q when q.live && n >= q.sure && n <= List.length q.toks -> truncate !s q n
             | _ -> false in
           agree "truncate" expected (said ok);
           if expected then incr truncated
       | [ "unpin"; ok; r ] ->
           let q = req !s (int_of_string r) in
           agree "unpin" (q <> None) (said ok);
           Option.iter (fun q -> q.table <- []) q
       | [ "finish"; ok; r ] ->
           let q = req !s (int_of_string r) in
           agree "finish" (q <> None) (said ok);
           Option.iter (fun q -> q.table <- []; q.toks <- []; q.sure <- 0; q.live <- false) q
       | [ "reset"; next ] ->
           if int_of_string next < !s.next then fail !line "a chain id will be given twice";
           reset !s;
           !s.next <- int_of_string next
       | [ "step"; ok; nops; nrows ] ->
           let ops = List.init (int_of_string nops) (fun _ -> words (input ())) in
           let got = List.init (int_of_string nrows) (fun _ -> ints (words (input ()))) in
           let before = Array.copy !s.claims in
           let after = copy !s in
           let rec run rows = function
             | [] -> Some rows
             | o :: rest -> ( match operate after o with Some more -> run (rows @ more) rest | None -> None ) in
           let expected = run [] ops in
           agree "step" (expected <> None) (said ok);
           (match expected with
            | None -> incr refused
            | Some rows ->
                incr steps;
                rows_seen := !rows_seen + List.length rows;
                let plain r = [ r.r_req; List.length r.r_ctx; r.r_tok; r.r_write; Bool.to_int r.r_samp ] in
                if List.map plain rows <> got then fail !line "the ledger launches other rows than the specification";
                let claim slot = if slot < Array.length before then before.(slot) else None in
                if not (accepts claim rows) then fail !line "the specification refuses an accepted step";
                let allowed = granted claim rows in
                Array.iteri (fun i c -> if c <> None && c <> allowed i then fail !line "slot %d is claimed wrongly" i) after.claims;
                s := after)
       | [ "state"; next ] -> if int_of_string next <> !s.next then fail !line "chain ids differ"
       | l -> fail !line "not understood: %s" (String.concat " " l)
     done
   with End_of_file -> ());
  Printf.printf "%d sequences, %d accepted steps with %d rows, %d refused steps (%d operations for their chain id alone), %d truncations\n"
    !sequences !steps !rows_seen !refused !other_chain !truncated
